/** Arrays are stored as in memory (little-endian, as all machines that Node.js runs on): ids i32, logprobs f64, mask u8. */
const TURNS = `
CREATE TABLE turns (
  id TEXT PRIMARY KEY,
  session TEXT NOT NULL,
  tenant TEXT NOT NULL,
  grp TEXT NOT NULL,
  parent TEXT,
  started_at_ms REAL NOT NULL,
  is_first INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  details TEXT NOT NULL,
  ids BLOB NOT NULL,
  logprobs BLOB NOT NULL,
  mask BLOB NOT NULL,
  request BLOB,
  answer BLOB
);
CREATE INDEX turns_by_session ON turns (session, tenant, id);
CREATE INDEX turns_by_group ON turns (grp, id) WHERE grp <> '';
CREATE INDEX first_turns ON turns (id) WHERE is_first = 1;
CREATE TABLE versions (
  turn TEXT NOT NULL,
  version TEXT NOT NULL,
  PRIMARY KEY (turn, version)
) WITHOUT ROWID;
CREATE TRIGGER turn_removed AFTER DELETE ON turns BEGIN DELETE FROM versions WHERE turn = old.id; END;
`;

/** How sessions ended; labels as a JSON list. */
const OUTCOMES = `
CREATE TABLE outcomes (
  session TEXT NOT NULL,
  tenant TEXT NOT NULL,
  finished_at_ms REAL NOT NULL,
  reward REAL,
  labels TEXT NOT NULL,
  PRIMARY KEY (session, tenant)
) WITHOUT ROWID;
`;

/** Bodies may be packed (`packed-body.ts`): an earlier turnout can't read them. The tables are the same. */
const PACKED_BODIES = '';

/** The likeliest tokens at the positions of sampled ones, as JSON. */
const TOP_TOKENS = `
ALTER TABLE turns ADD COLUMN top_tokens BLOB;
`;

/** Values of `RecordTables`. */
const RECORDS = `
CREATE TABLE records (
  tbl TEXT NOT NULL,
  key TEXT NOT NULL,
  at_ms REAL NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (tbl, key)
) WITHOUT ROWID;
`;

/** The statements from each schema to the next one, beginning with an empty file. */
const STEPS: readonly string[] = [TURNS, OUTCOMES, PACKED_BODIES, TOP_TOKENS, RECORDS];

/** Written into the file. */
export const SCHEMA_VERSION = STEPS.length;

/** The statements that make a file of this schema one of `SCHEMA_VERSION`. */
export const stepsFrom = (version: number): string => STEPS.slice(version).join('');

/** The tables that a file of an older schema lacks, as temporary ones for readers. A missing column is read as null. */
export const missingTables = (version: number): string =>
  STEPS.slice(version)
    .filter((step) => step.includes('CREATE TABLE'))
    .join('')
    .replaceAll('CREATE TABLE', 'CREATE TEMP TABLE');

/** @returns what is wrong with a file of this version; null: nothing */
export function versionProblem(version: number, isReader: boolean): string | null {
  if (version > SCHEMA_VERSION) {
    return `written by a newer turnout (schema ${version}, this one knows ${SCHEMA_VERSION}): update turnout.`;
  }
  return version === 0 && isReader ? 'no trajectories in it.' : null;
}
