// The row `feed` of the benchmark by itself. `npm run bench -- feed [turns that are pending]`
import { machine } from '../machine.ts';
import { measureFeed } from './measure.ts';
import { feedSection, feedTargetLines } from './render.ts';

const result = await measureFeed(Number(process.argv[2] ?? 10_400), () => {});
const targets = feedTargetLines(result).map((cells) => `- ${cells.join(' · ')}`);
process.stdout.write(`${[machine(), ...feedSection(result), targets.join('\n')].join('\n\n')}\n`);
process.exit(0);
