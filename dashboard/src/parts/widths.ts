/** Widths that follow texts, px. */

type WidthOf = (text: string) => number;

const CELL_PADDING_PX = 26;
/** The share of a table that a column may take for its text. */
const TEXT_SHARE = 0.3;
/** The least width of an axis, which most labels fit; and what stands between a label and the plot. */
const AXIS_PX = 56;
const LABEL_GAP_PX = 12;

/** Of a column: as wide as its longest text, up to a part of the table. */
export function columnPx(leastPx: number, texts: readonly string[], tablePx: number, widthOf: WidthOf): number {
  const longest = texts.reduce((most, text) => (text.length > most.length ? text : most), '');
  return Math.max(leastPx, Math.min(tablePx * TEXT_SHARE, widthOf(longest) + CELL_PADDING_PX));
}

/** Of an axis: no label is cut. */
export const axisPx = (labels: readonly string[], widthOf: WidthOf): number =>
  Math.max(AXIS_PX, ...labels.map((label) => widthOf(label) + LABEL_GAP_PX));

let pen: CanvasRenderingContext2D | null = null;

/** The width of a text, by default in the font of tables. */
export function textPx(text: string, font = `500 13px ${getComputedStyle(document.body).fontFamily}`): number {
  pen ??= document.createElement('canvas').getContext('2d')!;
  pen.font = font;
  return Math.ceil(pen.measureText(text).width);
}
