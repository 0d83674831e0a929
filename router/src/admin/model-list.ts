import type { Exchange } from '../exchange.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import { ownHead } from '../wire/response-head.ts';

/** Answers `GET /v1/models` where one worker can't answer for all: what all of them serve. */
export function modelList(models: FleetModels): (x: Exchange) => boolean {
  return (x) => {
    if (!models.areSeveral || x.path !== '/v1/models' || x.head.method !== 'GET') return false;
    void models.lookAgain().then(() => {
      const body = Buffer.from(models.list());
      x.sink.head(ownHead(200, 'OK', 'content-type: application/json\r\n', body.length));
      x.sink.body(body, 0, body.length);
      x.sink.end();
      x.body.release();
      x.outcome ??= 'complete';
    });
    return true;
  };
}
