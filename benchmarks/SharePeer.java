import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own share consumer: writes "offset delivery-count milliseconds" for every record, until its standard input ends. */
public class SharePeer {
    public static void main(String[] args) throws Exception {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException gone) {
                // the parent has ended
            }
            System.out.flush();
            Runtime.getRuntime().halt(0);
        });
        watch.setDaemon(true);
        watch.start();
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("client.id", args[2]);
        config.put("enable.metrics.push", "false");
        for (int at = 3; at < args.length; at++) {
            config.put(args[at].substring(0, args[at].indexOf('=')), args[at].substring(args[at].indexOf('=') + 1));
        }
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    out.println(record.offset() + " " + record.deliveryCount().orElse((short) 0) + " "
                        + System.currentTimeMillis());
                }
                out.flush();
            }
        }
    }
}
