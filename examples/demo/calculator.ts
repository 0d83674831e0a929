/** The tool of the demo's agent: works out `12*17+4`-like expressions of whole numbers. Throws on anything else. */
export function calculate(expression: string): number {
  if (!/^\d+([-+*/]\d+)*$/.test(expression)) throw new Error(`not an expression: ${expression}`);
  const sum = expression.match(/[-+]?\d+([*/]\d+)*/g)!;
  return sum.reduce((total, term) => total + product(term), 0);
}

function product(term: string): number {
  const [first, ...rest] = term.match(/[-+]?\d+|[*/]/g)!;
  let value = Number(first);
  for (let i = 0; i < rest.length; i += 2)
    value = rest[i] === '*' ? value * Number(rest[i + 1]) : value / Number(rest[i + 1]);
  return value;
}
