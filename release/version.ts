import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The version of a release is that of `router/package.json`. The wheels read it from there; these files repeat it. */

const SOURCE = 'router/package.json';
const VERSION = String.raw`(\d+\.\d+\.\d+(?:-rc\.\d+)?)`;

/** The first group of each pattern is the version. */
const places: readonly { readonly file: string; readonly patterns: readonly string[] }[] = [
  { file: SOURCE, patterns: [`^  "version": "${VERSION}"`] },
  { file: 'package-lock.json', patterns: [`"name": "turnout",\\n\\s+"version": "${VERSION}"`] },
  { file: 'deploy/helm/turnout/Chart.yaml', patterns: [`^version: ${VERSION}$`, `^appVersion: ${VERSION}$`] },
  ...[
    'deploy/Dockerfile',
    'deploy/kubernetes/router.yaml',
    'deploy/kubernetes/router-pairs.yaml',
    'docs/guides/kubernetes.md',
  ].map((file) => ({ file, patterns: [`turnout:${VERSION}`] })),
  { file: 'README.md', patterns: [`^Status: ${VERSION}`, `turnout-${VERSION}\\.tgz`, `turnout:${VERSION}`] },
];

export interface Place {
  readonly file: string;
  readonly version: string;
}

/** The files that have the version, and which version each has. @throws an error that names a file without one */
export function versionsIn(root: string): Place[] {
  return places.flatMap(({ file, patterns }) => {
    const text = readFileSync(join(root, file), 'utf8');
    return patterns.flatMap((pattern) => {
      const found = [...text.matchAll(new RegExp(pattern, 'gm'))];
      if (found.length === 0) throw new Error(`${file} has no version in the form ${pattern}`);
      return found.map(([, version]) => ({ file, version: version! }));
    });
  });
}

export const versionOf = (root: string): string =>
  (JSON.parse(readFileSync(join(root, SOURCE), 'utf8')) as { version: string }).version;

/** Writes the version into all files. @throws an error if it is not the version of a release */
export function setVersion(root: string, version: string): void {
  if (!new RegExp(`^${VERSION}$`).test(version))
    throw new Error(`--set-version ${version}: must be X.Y.Z or X.Y.Z-rc.N, for example 1.2.0 or 1.2.0-rc.1`);
  for (const { file, patterns } of places) {
    const path = join(root, file);
    const text = patterns.reduce(
      (before, pattern) =>
        before.replaceAll(new RegExp(pattern, 'gm'), (match, old: string) => match.replace(old, version)),
      readFileSync(path, 'utf8'),
    );
    writeFileSync(path, text);
  }
}

/** As Python writes it (PEP 440). */
export const pythonVersion = (version: string): string => version.replace('-rc.', 'rc');
