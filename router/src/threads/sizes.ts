/**
 * Work on more bytes than this runs on a thread. The slowest calls read a body five times: 4 ms for this many bytes in the worst case.
 * Buffers up to this size are copied for a thread, so that their owners may keep them; larger ones are transferred.
 */
export const LARGE_BYTES = 65_536;

/** The limit of calls that read a body once: 3 ms for this many bytes in the worst case. */
export const LARGE_SCAN_BYTES = 262_144;
