// kafkajs as a driver of kclient-quota certify: npm install kafkajs, then
//   kclient-quota certify client --name kafkajs -- node examples/certify_kafkajs.mjs
import { setTimeout as pause } from "node:timers/promises";
import kafkajs from "kafkajs";

const { Kafka, CompressionTypes, logLevel } = kafkajs;
const env = (key) => process.env[`CERTIFY_${key}`];
const [messages, keys, config] = [Number(env("MESSAGES")), Number(env("KEYS")), JSON.parse(env("CONFIG"))];
const tell = (event, more = {}) => process.stdout.write(`${JSON.stringify({ event, ...more })}\n`);
const message = (id) => ({
  key: keys ? String(id % keys) : null,
  value: String(id).padStart(10, "0").padEnd(Number(env("VALUE_BYTES")), "."),
});
const kafka = new Kafka({
  clientId: env("CLIENT_ID"),
  brokers: env("BOOTSTRAP_SERVERS").split(","),
  requestTimeout: config["request.timeout.ms"] ?? 30_000,
  logLevel: logLevel.ERROR,
});
let stopped = false;
const told = new Promise((stop) => {
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stop((stopped = true)));
});

async function produce() {
  const acks = "acks" in config ? (config.acks === "all" ? -1 : Number(config.acks)) : -1;
  const compression = config["compression.type"] === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
  const producer = kafka.producer({ idempotent: acks === -1, maxInFlightRequests: 1 });
  await producer.connect();
  const reports = [];
  for (let id = 0; id < messages && !stopped; id++) {
    const sent = producer.send({ topic: env("TOPIC"), messages: [message(id)], acks, compression });
    tell("sent", { id });
    reports.push(
      sent.then(
        () => tell("acknowledged", { id }),
        (error) => tell("failed", { id, error: String(error) }),
      ),
    );
    await pause(Number(env("PAUSE_MS")));
  }
  await Promise.race([Promise.all(reports), told]);
  await producer.disconnect();
}

async function transact() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: env("GROUP") });
  await producer.connect();
  for (let first = 0; first < messages; first += 10) {
    const ids = Array.from({ length: Math.min(10, messages - first) }, (_, at) => first + at);
    const transaction = await producer.transaction();
    for (const id of ids) tell("sent", { id });
    await transaction.send({ topic: env("TOPIC"), messages: ids.map(message) });
    await transaction.commit();
    for (const id of ids) tell("acknowledged", { id });
  }
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({
    groupId: env("GROUP"),
    sessionTimeout: config["session.timeout.ms"] ?? 30_000,
    heartbeatInterval: config["heartbeat.interval.ms"] ?? 3_000,
  });
  const seen = new Set();
  await consumer.connect();
  await consumer.subscribe({ topic: env("TOPIC"), fromBeginning: true });
  const done = new Promise((all) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const id = Number(message.value.subarray(0, 10));
        tell("received", { id, partition });
        if (seen.add(id).size === messages) all();
      },
    });
  });
  await Promise.race([done, told]);
  await consumer.disconnect();
}

async function createTopics() {
  const admin = kafka.admin();
  await admin.connect();
  for (let id = 0; id < messages; id++) {
    await admin.createTopics({ topics: [{ topic: `${env("TOPIC")}-made-${id}` }] }).then(
      () => tell("acknowledged", { id }),
      (error) => tell("failed", { id, error: String(error) }),
    );
  }
  await admin.disconnect();
}

const role = { produce, consume, transact, "create-topics": createTopics }[env("ROLE")];
if (!role) {
  console.error(`kafkajs cannot ${env("ROLE")}`);
  process.exit(3);
}
await role();
tell("closed");
process.exit(0);
