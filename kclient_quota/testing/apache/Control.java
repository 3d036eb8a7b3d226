import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** A door on loopback for the test that started the brokers; requests are property files, answers are text. */
final class Control {
    private static final String ENTITY = "entity.";
    private static final String DEFAULT_ENTITY = "default.";
    private static final String VALUE = "value.";
    private static final String CONFIG = "config.";
    private static final long SETTLE_MS = 10_000;
    private static Admin admin;

    private Control() {}

    private interface Verb {
        String answer(Properties request) throws Exception;
    }

    static int listen(String bootstrap) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work, "control");
            thread.setDaemon(true);
            return thread;
        }));
        route(server, "/bytes", request -> Recorder.bytes());
        route(server, "/metrics", request -> Recorder.metrics());
        route(server, "/topic", request -> topic(admin(bootstrap), request));
        route(server, "/quota", request -> quota(admin(bootstrap), request));
        route(server, "/scram", request -> scram(admin(bootstrap), request));
        route(server, "/start", request -> {
            Brokers.start(Integer.parseInt(request.getProperty("node")));
            return "";
        });
        route(server, "/stop", request -> {
            Brokers.stop(Integer.parseInt(request.getProperty("node")));
            return "";
        });
        server.start();
        return server.getAddress().getPort();
    }

    private static synchronized Admin admin(String bootstrap) {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "kclient-quota-harness"));
        }
        return admin;
    }

    private static void route(HttpServer server, String path, Verb verb) {
        server.createContext(path, exchange -> {
            int status = 200;
            String text;
            try {
                Properties request = new Properties();
                request.load(new InputStreamReader(exchange.getRequestBody(), StandardCharsets.UTF_8));
                text = verb.answer(request);
            } catch (Throwable failure) {
                status = 500;
                text = String.valueOf(failure.getCause() == null ? failure : failure.getCause());
            }
            reply(exchange, status, text.getBytes(StandardCharsets.UTF_8));
        });
    }

    private static void reply(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    private static Map<String, String> under(Properties request, String prefix) {
        Map<String, String> found = new HashMap<>();
        for (String name : request.stringPropertyNames()) {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), request.getProperty(name));
            }
        }
        return found;
    }

    private static String topic(Admin admin, Properties request) throws Exception {
        NewTopic topic = new NewTopic(
            request.getProperty("name"),
            Integer.parseInt(request.getProperty("partitions")),
            Short.parseShort(request.getProperty("replication")));
        admin.createTopics(List.of(topic.configs(under(request, CONFIG)))).all().get();
        return "";
    }

    private static String scram(Admin admin, Properties request) throws Exception {
        // one by one: Kafka refuses two mechanisms of one user in the same request
        for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
            ScramCredentialInfo credential = new ScramCredentialInfo(mechanism, 4096);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                request.getProperty("user"), credential, request.getProperty("password")))).all().get();
        }
        return "";
    }

    /** Alters one entity and waits until a broker's image shows the change; an empty value removes the quota. */
    private static String quota(Admin admin, Properties request) throws Exception {
        Map<String, String> names = under(request, ENTITY);
        under(request, DEFAULT_ENTITY).keySet().forEach(type -> names.put(type, null));
        List<ClientQuotaAlteration.Op> changes = new ArrayList<>();
        under(request, VALUE).forEach(
            (key, value) -> changes.add(new ClientQuotaAlteration.Op(key, value.isEmpty() ? null : Double.valueOf(value))));
        ClientQuotaEntity entity = new ClientQuotaEntity(names);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, changes))).all().get();
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        while (!applied(admin, entity, changes)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the quota of " + entity + " did not appear in the broker's image");
            }
            Thread.sleep(5);
        }
        return "";
    }

    private static boolean applied(Admin admin, ClientQuotaEntity entity, List<ClientQuotaAlteration.Op> changes) throws Exception {
        List<ClientQuotaFilterComponent> wanted = new ArrayList<>();
        entity.entries().forEach((type, name) -> wanted.add(
            name == null ? ClientQuotaFilterComponent.ofDefaultEntity(type) : ClientQuotaFilterComponent.ofEntity(type, name)));
        Map<String, Double> now = admin.describeClientQuotas(ClientQuotaFilter.containsOnly(wanted)).entities().get()
            .getOrDefault(entity, Map.of());
        return changes.stream().allMatch(change -> change.value() == null
            ? !now.containsKey(change.key())
            : change.value().equals(now.get(change.key())));
    }
}
