import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * A receiver of KIP-714 in the form of KIP-1217, for tests: every push becomes a file, named
 * "number,client-instance-id,client-id,interval[,terminating]", in the folder that the broker's property
 * {@code telemetry.receiver.folder} names. A broker with {@code metric.reporters=TelemetryReceiver} advertises the APIs.
 * The number grows, and is the time in nanoseconds: brokers in processes of their own, or started again, may share a
 * folder, and none must write over another's file.
 */
public final class TelemetryReceiver implements MetricsReporter, ClientTelemetryExporterProvider {
    private static final AtomicLong NUMBER = new AtomicLong();
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of(String.valueOf(configs.get("telemetry.receiver.folder")));
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this::export;
    }

    private void export(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        byte[] data = new byte[payload.data().remaining()];
        payload.data().duplicate().get(data);
        Instant now = Instant.now();
        long nanos = now.getEpochSecond() * 1_000_000_000L + now.getNano();
        String name = String.format(
            "%019d,%s,%s,%d%s",
            NUMBER.updateAndGet(last -> Math.max(last + 1, nanos)),
            payload.clientInstanceId(),
            context.authorizableRequestContext().clientId(),
            context.pushIntervalMs(),
            payload.isTerminating() ? ",terminating" : "");
        try {
            Path written = Files.write(folder.resolve(name + ".part"), data);
            Files.move(written, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
