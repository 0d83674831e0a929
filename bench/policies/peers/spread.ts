// Policies that use load at most: random, round robin, power of two, least in flight.
import type { PolicyHost } from '../policy.ts';
import { RouterPolicy } from './router-view.ts';

export class RandomChoice extends RouterPolicy {
  route(): number {
    return this.pickAny(this.alive);
  }
}

export class RoundRobin extends RouterPolicy {
  #turn = 0;

  route(): number {
    return this.alive[this.#turn++ % this.alive.length]!;
  }
}

/** The less loaded of two different engines drawn at random. */
export class PowerOfTwo extends RouterPolicy {
  route(): number {
    const size = this.alive.length;
    const first = Math.floor(this.host.random() * size);
    const step = size > 1 ? 1 + Math.floor(this.host.random() * (size - 1)) : 0;
    const one = this.alive[first]!;
    const other = this.alive[(first + step) % size]!;
    return this.inflight[one]! <= this.inflight[other]! ? one : other;
  }
}

/** The fewest in flight; a random one of several. */
export class LeastInflight extends RouterPolicy {
  route(): number {
    const fewest = Math.min(...this.alive.map((engine) => this.inflight[engine]!));
    return this.pickAny(this.alive.filter((engine) => this.inflight[engine] === fewest));
  }
}

export const spreadPolicies = {
  random: (host: PolicyHost) => new RandomChoice(host),
  round_robin: (host: PolicyHost) => new RoundRobin(host),
  power_of_two: (host: PolicyHost) => new PowerOfTwo(host),
  least_inflight: (host: PolicyHost) => new LeastInflight(host),
};
