import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** Alters and describes the quotas of so many users with Kafka's own Admin client; prints seconds of both. */
public class AdminQuotas {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        double value = Double.parseDouble(args[2]);
        long start = System.nanoTime();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            List<ClientQuotaAlteration> alterations = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "user-" + number));
                alterations.add(new ClientQuotaAlteration(
                    entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", value))));
            }
            for (int from = 0; from < count; from += 2000) {
                admin.alterClientQuotas(alterations.subList(from, Math.min(count, from + 2000))).all().get();
            }
            long altered = System.nanoTime();
            int found = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size();
            long described = System.nanoTime();
            System.out.printf("%.6f %.6f %d%n", (altered - start) / 1e9, (described - altered) / 1e9, found);
        }
    }
}
