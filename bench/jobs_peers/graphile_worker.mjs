// graphile-worker, as its page on performance sets it up for its own figures; the local queue is
// larger (1,000, not 500), as the text beside the option has it for very quick tasks.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const worker = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 1000 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
  logger,
};

export async function prepare(connectionString) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
}

export async function connect(connectionString, maxPoolSize) {
  const utils = await makeWorkerUtils({ connectionString, logger, maxPoolSize });
  return {
    submit: (payload) => utils.addJob("nothing", payload),
    submitMany: (payloads) =>
      utils.addJobs(payloads.map((payload) => ({ identifier: "nothing", payload }))),
    close: () => utils.release(),
  };
}

export async function work(connectionString, handle) {
  const runner = await run({
    preset: { worker: { ...worker, connectionString } },
    taskList: { nothing: async (payload) => handle(payload) },
    noHandleSignals: true,
    parsedCronItems: [],
  });
  return () => runner.stop();
}
