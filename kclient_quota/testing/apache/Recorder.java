import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SampledStat;

/** Keeps every sample of the brokers' byte-rate sensors, so that bytes are counted as the broker itself records them. */
public final class Recorder implements MetricsReporter {
    private static final ConcurrentMap<String, KafkaMetric> METRICS = new ConcurrentHashMap<>();
    /** "node TAB type TAB user TAB client-id" to (start of the sample in epoch ms to its value in bytes). */
    private static final ConcurrentMap<String, ConcurrentMap<Long, Double>> SAMPLES = new ConcurrentHashMap<>();
    private static final long POLL_MS = 200;
    private static final Field STAT = open(Rate.class, "stat");
    private static final Field WINDOWS = open(SampledStat.class, "samples");
    private static final Field START = open(SampledStat.class.getDeclaredClasses()[0], "startTimeMs");
    private static final Field VALUE = open(SampledStat.class.getDeclaredClasses()[0], "value");

    static {
        Thread poller = new Thread(Recorder::poll, "byte-rate-recorder");
        poller.setDaemon(true);
        poller.start();
    }

    private String node = "?";

    @Override
    public void configure(Map<String, ?> configs) {
        node = String.valueOf(configs.get("node.id"));
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        METRICS.put(key(metric.metricName()), metric);
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        METRICS.remove(key(metric.metricName()), metric);
    }

    @Override
    public void close() {
        METRICS.keySet().removeIf(key -> key.startsWith(node + "\t"));
    }

    /** One line a sample: node, type, user, client-id, start in epoch ms, bytes. */
    static String bytes() {
        METRICS.forEach(Recorder::keep);
        StringBuilder out = new StringBuilder();
        SAMPLES.forEach((key, samples) -> samples.forEach(
            (start, value) -> out.append(key).append('\t').append(start).append('\t').append(value).append('\n')));
        return out.toString();
    }

    /** One line a metric: node, group, name, tags as k=v joined by commas, value. */
    static String metrics() {
        StringBuilder out = new StringBuilder();
        METRICS.forEach((key, metric) -> out.append(key).append('\t').append(metric.metricValue()).append('\n'));
        return out.toString();
    }

    private String key(MetricName name) {
        StringBuilder tags = new StringBuilder();
        name.tags().forEach((tag, value) -> tags.append(tags.length() == 0 ? "" : ",").append(tag).append('=').append(value));
        return node + "\t" + name.group() + "\t" + name.name() + "\t" + tags;
    }

    private static void poll() {
        while (true) {
            METRICS.forEach(Recorder::keep);
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException stopped) {
                return;
            }
        }
    }

    private static void keep(String key, KafkaMetric metric) {
        MetricName name = metric.metricName();
        if (!name.name().equals("byte-rate") || !name.tags().containsKey("client-id") || !(metric.measurable() instanceof Rate)) {
            return;
        }
        String node = key.substring(0, key.indexOf('\t'));
        String entity = String.join("\t", node, name.group(), name.tags().get("user"), name.tags().get("client-id"));
        ConcurrentMap<Long, Double> kept = SAMPLES.computeIfAbsent(entity, unseen -> new ConcurrentSkipListMap<>());
        // Kafka empties all samples that have grown old at one moment, so several may share their start: only one holds bytes
        Map<Long, Double> seen = new HashMap<>();
        try {
            List<?> samples = (List<?>) WINDOWS.get(STAT.get(metric.measurable()));
            for (int i = 0; i < samples.size(); i++) {
                Object sample = samples.get(i);
                long start = START.getLong(sample);
                double value = VALUE.getDouble(sample);
                // a sample that was recycled in between is read again next time, under its new start
                if (start == START.getLong(sample)) {
                    seen.merge(start, value, Double::sum);
                }
            }
            kept.putAll(seen);
        } catch (IllegalAccessException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private static Field open(Class<?> owner, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException other) {
            throw new IllegalStateException("not the Kafka version this was written for", other);
        }
    }
}
