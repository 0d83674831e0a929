// A process that does nothing but say how late its loop is: what the machine, not the router, is to blame for.
import { answerQuestions } from './process-report.ts';

answerQuestions(
  () => ({}),
  async () => {},
);
process.send!({ ready: {} });
