import java.io.IOException;
import java.io.PrintStream;
import java.io.Reader;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Time;

/**
 * Runs every broker named by a property file in one JVM, until standard input ends, so that nothing outlives its parent.
 *
 * <p>Arguments: cluster id, folder that holds everything and is removed after that end, a Python to remove it with,
 * property files.
 */
public final class Brokers {
    private static final Map<Integer, Properties> SETTINGS = new TreeMap<>();
    private static final Map<Integer, KafkaRaftServer> RUNNING = new TreeMap<>();

    private static final String REMOVER =
            "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)";

    private Brokers() {}

    public static void main(String[] args) throws Exception {
        String clusterId = args[0];
        Path folder = Path.of(args[1]);
        Thread parent = new Thread(() -> haltWhenInputEnds(folder, args[2]), "parent-watch");
        parent.setDaemon(true);
        parent.start();
        for (int i = 3; i < args.length; i++) {
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

    /** The brokers write as long as they live, so their folder is removed by a process that outlives them. */
    private static void haltWhenInputEnds(Path folder, String python) {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
            // its standard input is a pipe of this process, and ends with it
            new ProcessBuilder(python, "-c", REMOVER, folder.toString())
                    .directory(folder.getParent().toFile())
                    .redirectOutput(Redirect.DISCARD)
                    .redirectError(Redirect.DISCARD)
                    .start();
        } catch (IOException failed) {
            System.err.println(failed);
        }
        Runtime.getRuntime().halt(0);
    }
}
