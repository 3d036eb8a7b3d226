import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client in the loops of ProducerPerformance and ConsumerPerformance, with messages that can be told
 * apart. What happened is written to a file, a line each, for Python to count. Ends when standard input does.
 */
public class JavaPeer {
    /** A turn that has begun is counted whole. */
    private static final long JOIN_MS = 20_000;

    private static final int ID_DIGITS = 10;
    private final Map<String, String> spec = new HashMap<>();
    private final List<long[]> messages = new ArrayList<>();
    private final Map<Integer, String> errors = new HashMap<>();
    private volatile double longestThrottleMs = 0;
    private volatile boolean over = false;
    private final List<byte[]> bodies = new ArrayList<>();
    private int rebalances = 0;
    private long sendEndedMs = 0;

    public static void main(String[] args) throws Exception {
        JavaPeer peer = new JavaPeer();
        for (String arg : args) {
            peer.spec.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        }
        endWithParent();
        switch (peer.spec.get("verb")) {
            case "produce" -> peer.produce();
            case "consume" -> peer.consume();
            case "loop" -> peer.loop();
            default -> peer.idle();
        }
        // a client that still waits out a throttle must not keep the measurement from ending
        Runtime.getRuntime().halt(0);
    }

    private static void endWithParent() {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (IOException closed) {
                // the parent is gone, too
            }
            Runtime.getRuntime().halt(1);
        });
        watch.setDaemon(true);
        watch.start();
    }

    private void produce() throws Exception {
        readBodies();
        KafkaProducer<byte[], byte[]> producer = producer(spec.get("client_id"));
        watchThrottle(producer, "produce-throttle-time-max");
        int count = number("messages");
        long untilNs = System.nanoTime() + number("seconds") * 1_000_000_000L;
        while (count > 0 ? messages.size() < count : System.nanoTime() < untilNs) {
            int id = messages.size();
            send(producer, id, value(id), true);
        }
        sendEndedMs = System.currentTimeMillis();
        producer.flush();
        over = true;
        writeMessages();
    }

    private void consume() throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of());
        watchThrottle(consumer, "fetch-throttle-time-max");
        subscribe(consumer);
        List<String> lines = new ArrayList<>();
        long untilMs = System.currentTimeMillis() + number("seconds") * 1000L;
        while (System.currentTimeMillis() < untilMs) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                lines.add("r " + System.currentTimeMillis() + " " + record.partition() + " " + id(record.value())
                    + " " + record.value().length);
            }
        }
        over = true;
        write(lines);
    }

    /** The documented at-least-once loop: poll, send; then flush, then commit. */
    private void loop() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(spec.get("client_id"));
        watchThrottle(producer, "produce-throttle-time-max");
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(
            "enable.auto.commit", "false",
            "max.poll.records", spec.get("commit_every"),
            "max.poll.interval.ms", spec.get("poll_interval_ms"),
            "session.timeout.ms", spec.get("poll_interval_ms")));
        subscribe(consumer);
        Thread work = new Thread(() -> {
            while (!over) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    send(producer, messages.size(), record.value(), false);
                }
                if (!records.isEmpty()) {
                    producer.flush();
                    try {
                        consumer.commitSync();
                    } catch (KafkaException late) {
                        // the group went on without us; the next poll starts at what was committed
                    }
                }
            }
        });
        work.setDaemon(true);
        work.start();
        Thread.sleep(number("seconds") * 1000L);
        over = true;
        work.join(JOIN_MS);
        writeMessages();
    }

    private void idle() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(spec.get("client_id"));
        producer.send(new ProducerRecord<>(spec.get("topic"), new byte[100])).get();
        System.out.println("READY");
        Thread.sleep(Long.MAX_VALUE);
    }

    private KafkaProducer<byte[], byte[]> producer(String clientId) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", spec.get("bootstrap"));
        config.put("client.id", clientId);
        config.put("enable.metrics.push", spec.getOrDefault("enable.metrics.push", "true"));
        spec.forEach((key, value) -> {
            if (key.startsWith("config.")) {
                config.put(key.substring("config.".length()), value);
            }
        });
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", spec.get("bootstrap"));
        config.put("client.id", spec.getOrDefault("reader_id", spec.get("client_id")));
        config.put("group.id", spec.get("client_id"));
        config.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void subscribe(KafkaConsumer<byte[], byte[]> consumer) {
        String topic = spec.getOrDefault("source", spec.get("topic"));
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                rebalances += partitions.isEmpty() ? 0 : 1;
            }
        });
    }

    /** Sends a message; it counts from the call on, or from its return. */
    private void send(KafkaProducer<byte[], byte[]> producer, int number, byte[] value, boolean fromReturn) {
        long[] times = {fromReturn ? -1 : System.nanoTime(), -1};
        synchronized (messages) {
            messages.add(times);
        }
        byte[] key = number("keys") > 0 && fromReturn
            ? Integer.toString(number % number("keys")).getBytes(StandardCharsets.US_ASCII) : null;
        producer.send(new ProducerRecord<>(spec.get("topic"), key, value), (metadata, error) -> {
            times[1] = System.nanoTime();
            if (error != null) {
                synchronized (errors) {
                    errors.put(number, error.getClass().getSimpleName());
                }
            }
        });
        if (fromReturn) {
            times[0] = System.nanoTime();
        }
    }

    /** A maximum is over Kafka's own window of a minute, so it is looked at every second. */
    private void watchThrottle(Object client, String name) {
        Thread watch = new Thread(() -> {
            while (!over) {
                Collection<? extends Metric> metrics = client instanceof KafkaProducer
                    ? ((KafkaProducer<?, ?>) client).metrics().values()
                    : ((KafkaConsumer<?, ?>) client).metrics().values();
                for (Metric metric : metrics) {
                    if (metric.metricName().name().equals(name) && metric.metricValue() instanceof Double
                            && (Double) metric.metricValue() > longestThrottleMs) {
                        longestThrottleMs = (Double) metric.metricValue();
                    }
                }
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        });
        watch.setDaemon(true);
        watch.start();
    }

    private void writeMessages() throws IOException {
        List<String> lines = new ArrayList<>();
        synchronized (messages) {
            synchronized (errors) {
                for (int at = 0; at < messages.size(); at++) {
                    long[] times = messages.get(at);
                    lines.add("m " + times[0] + " " + times[1] + " " + errors.getOrDefault(at, "-"));
                }
            }
        }
        write(lines);
    }

    private void write(List<String> lines) throws IOException {
        try (PrintWriter out = new PrintWriter(Path.of(spec.get("out")).toFile(), StandardCharsets.UTF_8)) {
            lines.forEach(out::println);
            out.println("t " + longestThrottleMs);
            out.println("b " + rebalances);
            out.println("g " + sendEndedMs);
        }
    }

    private int number(String key) {
        return Integer.parseInt(spec.getOrDefault(key, "0"));
    }

    /** The bodies that the Python side has written: each behind its length. */
    private void readBodies() throws IOException {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(spec.get("bodies"))))) {
            while (in.available() > 0) {
                byte[] body = new byte[in.readInt()];
                in.readFully(body);
                bodies.add(body);
            }
        }
    }

    private byte[] value(int id) {
        byte[] body = bodies.get(id % bodies.size());
        byte[] value = Arrays.copyOf(String.format("%0" + ID_DIGITS + "d", id).getBytes(StandardCharsets.US_ASCII),
            ID_DIGITS + body.length);
        System.arraycopy(body, 0, value, ID_DIGITS, body.length);
        return value;
    }

    private static int id(byte[] value) {
        return Integer.parseInt(new String(value, 0, ID_DIGITS, StandardCharsets.US_ASCII));
    }
}
