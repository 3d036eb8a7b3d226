import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;

/**
 * Reads records of coordinators with Kafka's own classes: lines of topic, key and value in hexadecimal ("-" for none)
 * in, one of JSON for each out.
 */
public class CoordinatorRecords {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNext()) {
            boolean ofShares = lines.next().equals("__share_group_state");
            ByteBuffer key = bytes(lines.next()), value = bytes(lines.next());
            CoordinatorRecord found = ofShares
                ? new ShareCoordinatorRecordSerde().deserialize(key, value)
                : new GroupCoordinatorRecordSerde().deserialize(key, value);
            int left = key.remaining() + (value == null ? 0 : value.remaining());
            System.out.println(
                "{\"type\": " + found.key().apiKey() + ", \"left\": " + left + ", \"key\": " + key(ofShares, found)
                    + ", \"value\": " + value(ofShares, found) + "}");
        }
    }

    private static ByteBuffer bytes(String text) {
        return text.equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(text));
    }

    private static Object key(boolean ofShares, CoordinatorRecord found) {
        return ofShares
            ? org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters.writeRecordKeyAsJson(found.key())
            : org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters.writeRecordKeyAsJson(found.key());
    }

    private static Object value(boolean ofShares, CoordinatorRecord found) {
        if (found.value() == null) {
            return null;
        }
        return ofShares
            ? org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                found.value().message(), found.value().version())
            : org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                found.value().message(), found.value().version());
    }
}
