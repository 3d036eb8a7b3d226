import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own client as a driver of kclient-quota certify. */
public class Driver {
    private static final PrintStream OUT = System.out;
    private static final Duration CLOSE = Duration.ofSeconds(5);
    private static final int PER_TRANSACTION = 10;
    private static final AtomicBoolean STOPPED = new AtomicBoolean();
    private static final AtomicInteger OUTSTANDING = new AtomicInteger();
    private static final Map<String, String> ENV = System.getenv();

    public static void main(String[] args) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            STOPPED.set(true);
            try {
                main.join(20_000);
            } catch (InterruptedException ended) {
                // nothing is left to wait for
            }
        }));
        switch (env("ROLE")) {
            case "produce" -> produce();
            case "transact" -> transact();
            case "consume" -> consume();
            case "share-consume" -> shareConsume();
            default -> createTopics();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void produce() throws Exception {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            settings(Map.of()), new ByteArraySerializer(), new ByteArraySerializer());
        for (int id = 0; id < number("MESSAGES") && !STOPPED.get(); id++) {
            send(producer, id);
            Thread.sleep(number("PAUSE_MS"));
        }
        while (OUTSTANDING.get() > 0 && !STOPPED.get()) {
            Thread.sleep(20);
        }
        producer.close(CLOSE);
        tell("closed", -1, null, -1);
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, int id) {
        byte[] key = number("KEYS") > 0 ? Integer.toString(id % number("KEYS")).getBytes() : null;
        OUTSTANDING.incrementAndGet();
        try {
            producer.send(new ProducerRecord<>(env("TOPIC"), key, value(id)), (metadata, error) -> {
                OUTSTANDING.decrementAndGet();
                if (error == null) {
                    tell("acknowledged", id, null, -1);
                } else {
                    tell("failed", id, error.toString(), -1);
                }
            });
            tell("sent", id, null, -1);
        } catch (KafkaException refused) {
            OUTSTANDING.decrementAndGet();
            tell("failed", id, refused.toString(), -1);
        }
    }

    private static void transact() throws Exception {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            settings(Map.of("transactional.id", env("GROUP"))), new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        for (int first = 0; first < number("MESSAGES"); first += PER_TRANSACTION) {
            int end = Math.min(first + PER_TRANSACTION, number("MESSAGES"));
            producer.beginTransaction();
            for (int id = first; id < end; id++) {
                producer.send(new ProducerRecord<>(env("TOPIC"), null, value(id)));
                tell("sent", id, null, -1);
            }
            producer.commitTransaction();
            for (int id = first; id < end; id++) {
                tell("acknowledged", id, null, -1);
            }
        }
        producer.close(CLOSE);
        tell("closed", -1, null, -1);
    }

    private static void consume() {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(Map.of(
            "group.id", env("GROUP"), "auto.offset.reset", "earliest", "enable.auto.commit", "false")),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(env("TOPIC")));
        Set<Integer> seen = new HashSet<>();
        while (seen.size() < number("MESSAGES") && !STOPPED.get()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                int id = Integer.parseInt(new String(record.value(), 0, 10));
                seen.add(id);
                tell("received", id, null, record.partition());
            }
        }
        if (!STOPPED.get()) {
            consumer.commitSync();
        }
        consumer.close(CLOSE);
        tell("closed", -1, null, -1);
    }

    private static void shareConsume() {
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
            settings(Map.of("group.id", env("GROUP"))), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(env("TOPIC")));
        Set<Integer> seen = new HashSet<>();
        while (seen.size() < number("MESSAGES") && !STOPPED.get()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                int id = Integer.parseInt(new String(record.value(), 0, 10));
                seen.add(id);
                tell("received", id, null, record.partition(), record.deliveryCount().orElse((short) 0));
            }
        }
        if (!STOPPED.get()) {
            consumer.commitSync();
        }
        consumer.close(CLOSE);
        tell("closed", -1, null, -1);
    }

    private static void createTopics() throws Exception {
        try (Admin admin = Admin.create(settings(Map.of()))) {
            for (int id = 0; id < number("MESSAGES"); id++) {
                try {
                    admin.createTopics(List.of(new NewTopic(env("TOPIC") + "-made-" + id, 1, (short) 1))).all().get();
                    tell("acknowledged", id, null, -1);
                } catch (ExecutionException refused) {
                    tell("failed", id, refused.getCause().toString(), -1);
                }
            }
        }
        tell("closed", -1, null, -1);
    }

    /** The driver's configuration; `java.py` has turned CERTIFY_CONFIG into system properties that begin with it. */
    private static Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", env("BOOTSTRAP_SERVERS"));
        settings.put("client.id", env("CLIENT_ID"));
        Properties properties = System.getProperties();
        properties.stringPropertyNames().stream().filter(key -> key.startsWith("certify.")).forEach(
            key -> settings.put(key.substring("certify.".length()), properties.getProperty(key)));
        if ("consumer".equals(settings.get("group.protocol"))) {
            settings.remove("session.timeout.ms");
            settings.remove("heartbeat.interval.ms");
        }
        return settings;
    }

    private static byte[] value(int id) {
        StringBuilder value = new StringBuilder(String.format("%010d", id));
        return value.append(".".repeat(number("VALUE_BYTES") - value.length())).toString().getBytes();
    }

    private static void tell(String event, int id, String error, int partition) {
        tell(event, id, error, partition, 0);
    }

    private static void tell(String event, int id, String error, int partition, int delivery) {
        StringBuilder line = new StringBuilder("{\"event\": \"").append(event).append('"');
        if (id >= 0) {
            line.append(", \"id\": ").append(id);
        }
        if (error != null) {
            line.append(", \"error\": \"").append(error.replaceAll("[^ -~]|[\"\\\\]", " ")).append('"');
        }
        if (partition >= 0) {
            line.append(", \"partition\": ").append(partition);
        }
        if (delivery > 0) {
            line.append(", \"delivery\": ").append(delivery);
        }
        synchronized (OUT) {
            OUT.println(line.append('}'));
            OUT.flush();
        }
    }

    private static String env(String key) {
        return ENV.get("CERTIFY_" + key);
    }

    private static int number(String key) {
        return Integer.parseInt(env(key));
    }
}
