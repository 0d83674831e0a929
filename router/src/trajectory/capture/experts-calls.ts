import type { ExpertsFiles } from './experts-files.ts';
import type { ExpertsPiece } from './experts-tap.ts';

/** What the trajectory thread is told of routed experts. `files` is null without a data folder: nothing is kept then. */
export function expertsCalls(files: ExpertsFiles | null) {
  return {
    expertsPiece(piece: ExpertsPiece): void {
      files?.take(piece);
    },
    expertsEnd({ key, cut, description }: { key: number; cut: number; description: string }): void {
      files?.end(key, cut, description);
    },
    expertsDrop(key: number): void {
      files?.drop(key);
    },
  };
}
