import type { Deployment } from '../deployments.ts';

/** A complete snapshot that is made from a delta. */
export interface Build {
  readonly identity: string;
  /** Why it could not be made; null: it is being made. */
  readonly error: string | null;
}

/** The snapshots that are being made, one at a time for each deployment: a newer signal supersedes it. */
export class Builds {
  readonly #builds = new Map<Deployment, Build & { readonly control: AbortController }>();

  /** The build since the last signal; null: there was none, or its snapshot was signalled. */
  of(deployment: Deployment): Build | null {
    return this.#builds.get(deployment) ?? null;
  }

  /**
   * @param make makes the snapshot. @returns why it can't be made; null: it is made
   * @param then signals it. @returns why that is refused
   */
  begin(
    deployment: Deployment,
    identity: string,
    make: (signal: AbortSignal) => Promise<string | null>,
    then: () => string | null,
  ): void {
    this.drop(deployment);
    const control = new AbortController();
    const build = { identity, error: null, control };
    this.#builds.set(deployment, build);
    void make(control.signal).then((problem) => {
      if (this.#builds.get(deployment) !== build) return;
      const error = problem ?? then();
      if (error === null) this.#builds.delete(deployment);
      else this.#builds.set(deployment, { ...build, error });
    });
  }

  /** The snapshot is not wanted any more. */
  drop(deployment: Deployment): void {
    this.#builds.get(deployment)?.control.abort();
    this.#builds.delete(deployment);
  }

  close(): void {
    for (const { control } of this.#builds.values()) control.abort();
    this.#builds.clear();
  }
}
