import { writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { Header } from 'tar';

type HeaderFields = Exclude<ConstructorParameters<typeof Header>[0], Buffer | undefined>;

/** The blocks of one entry of a tar archive, whatever its fields say. */
export function tarEntry(path: string, content = '', more: HeaderFields = {}): Buffer {
  const block = Buffer.alloc(512);
  const size = Buffer.byteLength(content);
  new Header({ path, mode: 0o600, size, type: 'File', ...more }).encode(block, 0);
  return Buffer.concat([block, Buffer.from(content), Buffer.alloc((512 - (size % 512)) % 512)]);
}

export const TAR_END = Buffer.alloc(1024);

/** Writes a `.tar.gz` of these files, as SkyRL writes it: with an entry for the root, and not compressed. */
export function writeArchive(path: string, files: Readonly<Record<string, string>>, level = 0): void {
  const root = tarEntry('/', '', { type: 'Directory', mode: 0o700 });
  const entries = Object.entries(files).map(([name, content]) => tarEntry(name, content));
  writeFileSync(path, gzipSync(Buffer.concat([root, ...entries, TAR_END]), { level }));
}
