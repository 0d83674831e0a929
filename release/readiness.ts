import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Target } from './publish.ts';
import { versionOf, versionsIn } from './version.ts';

/** Why this checkout cannot be published from this machine. Without `--publish` the reasons are printed only. */
export function obstacles(
  root: string,
  targets: readonly Target[],
  image: string | undefined,
  env: NodeJS.ProcessEnv = process.env,
): string[] {
  const version = versionOf(root);
  const git = (...words: string[]): string => spawnSync('git', words, { cwd: root, encoding: 'utf8' }).stdout.trim();
  const read = (file: string): string => readFileSync(join(root, file), 'utf8');
  const wrong = versionsIn(root).filter((place) => place.version !== version);
  const { repository } = JSON.parse(read('router/package.json')) as { repository?: unknown };
  return [
    ...wrong.map(
      (place) => `${place.file} has the version ${place.version}: npm run release -- --set-version ${version}`,
    ),
    ...(git('status', '--porcelain') === '' ? [] : ['the checkout has changes that are not committed']),
    ...(git('tag', '--points-at', 'HEAD').split('\n').includes(`v${version}`)
      ? []
      : [`the commit has no tag v${version}: git tag -s v${version}`]),
    ...(new RegExp(`^## ${version.replaceAll('.', '\\.')}\\b`, 'm').test(read('CHANGELOG.md'))
      ? []
      : [`CHANGELOG.md has no section "## ${version}": rename "## Unreleased" to it`]),
    ...(targets.includes('npm') && repository === undefined
      ? [
          'router/package.json has no "repository": npm publishes with provenance only a package that names its repository',
        ]
      : []),
    ...(targets.some((target) => target !== 'image') && !hasIdentity(env)
      ? [
          'no identity of a CI job, which the provenance on npm and PyPI needs: publish from GitHub Actions (permission id-token: write) or GitLab CI',
        ]
      : []),
    ...(targets.includes('image') && image === undefined
      ? ['the image has no name: --image REGISTRY/NAME, without a tag']
      : []),
    ...(targets.includes('image') && !hasBuildx() ? ['no container engine with buildx is running'] : []),
  ];
}

/** The variables of a job of GitHub Actions or GitLab CI that may have an OpenID Connect token. */
const hasIdentity = (env: NodeJS.ProcessEnv): boolean =>
  env['ACTIONS_ID_TOKEN_REQUEST_URL'] !== undefined || env['SIGSTORE_ID_TOKEN'] !== undefined;

/** Whether a container engine is running that can build images with attestations. */
export const hasBuildx = (): boolean =>
  spawnSync('docker', ['buildx', 'version']).status === 0 && spawnSync('docker', ['info']).status === 0;
