import java.io.IOException;
import java.io.PrintStream;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;

/**
 * Runs every broker named by a property file in one JVM, until standard input ends, so that nothing outlives its parent.
 *
 * <p>Arguments: cluster id, folder that holds everything and is removed at that end, property files.
 */
public final class Brokers {
    private static final Map<Integer, Properties> SETTINGS = new TreeMap<>();
    private static final Map<Integer, KafkaRaftServer> RUNNING = new TreeMap<>();

    private static final Duration REMOVAL = Duration.ofSeconds(10);
    private static final Duration PAUSE = Duration.ofMillis(10);

    private Brokers() {}

    public static void main(String[] args) throws Exception {
        String clusterId = args[0];
        Path folder = Path.of(args[1]);
        Thread parent = new Thread(() -> haltWhenInputEnds(folder), "parent-watch");
        parent.setDaemon(true);
        parent.start();
        for (int i = 2; i < args.length; i++) {
            Properties settings = new Properties();
            try (Reader file = Files.newBufferedReader(Path.of(args[i]))) {
                settings.load(file);
            }
            format(clusterId, args[i]);
            SETTINGS.put(Integer.parseInt(settings.getProperty("node.id")), settings);
        }
        try {
            for (int node : SETTINGS.keySet()) {
                start(node);
            }
            int port = Control.listen(SETTINGS.values().iterator().next().getProperty("control.bootstrap"));
            System.out.println("READY " + port);
            System.out.flush();
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static synchronized void start(int node) {
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(SETTINGS.get(node), false), Time.SYSTEM);
        server.startup();
        RUNNING.put(node, server);
    }

    static synchronized void stop(int node) {
        KafkaRaftServer server = RUNNING.remove(node);
        if (server == null) {
            throw new IllegalStateException("broker " + node + " is not running");
        }
        server.shutdown();
    }

    private static void format(String clusterId, String file) {
        PrintStream quiet = new PrintStream(PrintStream.nullOutputStream());
        int code = StorageTool.execute(new String[] {"format", "--ignore-formatted", "-t", clusterId, "-c", file}, quiet);
        if (code != 0) {
            throw new IllegalStateException("formatting the storage of " + file + " failed with " + code);
        }
    }

    private static void haltWhenInputEnds(Path folder) {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
            // a broker that loses its log directory halts the JVM: not before everything is removed
            Exit.setHaltProcedure((status, message) -> waitForever());
            Exit.setExitProcedure((status, message) -> waitForever());
            long deadline = System.nanoTime() + REMOVAL.toNanos();
            while (Files.exists(folder) && System.nanoTime() < deadline) {
                remove(folder);
                LockSupport.parkNanos(PAUSE.toNanos());
            }
        } catch (IOException ended) {
            System.err.println(ended);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void waitForever() {
        while (true) {
            LockSupport.park();
        }
    }

    /** The brokers still run, so a file may appear or vanish meanwhile; what is left is for the next attempt. */
    private static void remove(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (UncheckedIOException | NoSuchFileException vanished) {
            System.err.println(vanished);
        }
    }
}
