import { wire } from '../harness/message.ts';
import type { Peer } from '../harness/peer.ts';

/** Ways in which the same bytes may arrive: the verdict on them must not depend on it. */
export type Delivery = 'whole' | 'in two' | 'byte by byte';

/** Longer inputs are not sent byte by byte: it takes too long. */
const MAX_SLOW_BYTES = 400;

export const deliveriesOf = (bytes: string): readonly Delivery[] =>
  bytes.length > MAX_SLOW_BYTES ? ['whole', 'in two'] : ['whole', 'in two', 'byte by byte'];

/** Where two pieces part: between a CR and its LF where there is one in the second half, else in the middle. */
function awkwardPlace(bytes: string): number {
  const middle = Math.floor(bytes.length / 2);
  const cr = bytes.indexOf('\r\n', middle);
  return cr < 0 ? middle : cr + 1;
}

export async function deliver(peer: Peer, bytes: string, delivery: Delivery): Promise<void> {
  if (delivery === 'byte by byte') return peer.writeSlowly(bytes);
  const place = delivery === 'whole' ? bytes.length : awkwardPlace(bytes);
  for (const part of [bytes.slice(0, place), bytes.slice(place)]) {
    if (part === '') continue;
    await new Promise((resolve) => {
      peer.socket.write(wire(part), resolve);
    });
    for (let turns = 0; turns < 3; turns++) await new Promise((resolve) => void setImmediate(resolve));
  }
}
