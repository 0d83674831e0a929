/** How often a test does something: `quick` times in `npm test`, `long` times in `npm test -- suite:long`. */
export const often = (quick: number, long: number): number => (process.env['TURNOUT_LONG'] === '1' ? long : quick);
