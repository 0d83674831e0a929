/** What can be published. */
export const targets = ['npm', 'pypi', 'image'] as const;
export type Target = (typeof targets)[number];

export interface Artifacts {
  readonly version: string;
  /** Paths. */
  readonly tarball: string;
  readonly wheels: readonly string[];
  /** A Python with `twine` and `pypi-attestations`. */
  readonly python: string;
  /** `registry/name`. */
  readonly image: string;
}

const PLATFORMS = 'linux/amd64,linux/arm64';

/** The commands that publish, each as its words. They run in the root of the checkout. */
export function commandsOf(target: Target, { version, tarball, wheels, python, image }: Artifacts): string[][] {
  // A candidate must not become what `npm install turnout` installs.
  const isCandidate = version.includes('-');
  const byTarget: Readonly<Record<Target, () => string[][]>> = {
    npm: () => [
      ['npm', 'publish', tarball, '--provenance', '--access=public', `--tag=${isCandidate ? 'next' : 'latest'}`],
    ],
    pypi: () => {
      const attestations = wheels.map((wheel) => `${wheel}.publish.attestation`);
      return [
        [python, '-m', 'pypi_attestations', 'sign', ...wheels],
        // Without a password twine asks PyPI for a token by the identity of the CI job (trusted publishing).
        [python, '-m', 'twine', 'upload', '--non-interactive', '--attestations', ...wheels, ...attestations],
      ];
    },
    image: () => {
      const tags = [version, ...(isCandidate ? [] : ['latest'])].map((tag) => `--tag=${image}:${tag}`);
      const signed = ['--sbom=true', '--provenance=mode=max', `--platform=${PLATFORMS}`];
      return [['docker', 'buildx', 'build', '--push', ...signed, ...tags, '--file=deploy/Dockerfile', '.']];
    },
  };
  return byTarget[target]();
}
