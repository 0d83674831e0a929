import type { Request } from '../workload.ts';
import { Resident } from './resident.ts';

/** A turn moves when it costs less than this share of what it costs at home. */
const moveShare = 0.8;

/** Resident sessions whose later turns move where that is clearly cheaper for all. */
export class Hybrid extends Resident {
  override route(request: Request): number | null {
    return this.#move(request) ?? super.route(request);
  }

  #move(request: Request): number | null {
    const { residents } = this;
    const home = residents.home(request.sessionId);
    if (request.turn === 0 || home === undefined || !this.isAlive[home]) return null;
    this.noteTurn(request);
    const { engine, seconds } = this.cheapest(request);
    const tokens = residents.tokens(request.sessionId);
    if (engine === home || seconds >= moveShare * this.cost(request, home).seconds) return null;
    if (!this.hasRoom(tokens, engine)) return null;
    residents.leave(request.sessionId);
    residents.enter(request.sessionId, engine, tokens);
    return engine;
  }
}
