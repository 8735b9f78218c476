// pg-boss, with what its documentation has for throughput: batches, fetched without a pause while
// they come full, and LISTEN/NOTIFY so that a job need not wait for the next poll.
import { PgBoss } from "pg-boss";

const queue = "nothing";

async function open(connectionString, more = {}) {
  const boss = new PgBoss({ connectionString, schedule: false, ...more });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

export async function prepare(connectionString) {
  const boss = await open(connectionString);
  await boss.createQueue(queue, { notify: true });
  await boss.stop({ graceful: false });
}

export async function connect(connectionString, max) {
  const boss = await open(connectionString, { max });
  return {
    submit: (data) => boss.send(queue, data),
    submitMany: (many) => boss.insert(queue, many.map((data) => ({ data }))),
    close: () => boss.stop({ graceful: false }),
  };
}

export async function work(connectionString, handle) {
  const boss = await open(connectionString, { useListenNotify: true });
  const options = {
    batchSize: 1000,
    localConcurrency: 2,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
  };
  await boss.work(queue, options, async (jobs) => {
    for (const job of jobs) handle(job.data);
  });
  return () => boss.stop({ graceful: false });
}
