import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after the other. A line in for each: its class and its arguments with
 * NUL between them, in Base64; a line out: "ended", its status, its standard output and error in Base64.
 */
public class JavaTools {
    private static final InheritableThreadLocal<Run> CURRENT = new InheritableThreadLocal<>();

    public static void main(String[] nothing) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        System.setIn(InputStream.nullInputStream());
        System.setOut(streamOf(run -> run.out));
        System.setErr(streamOf(run -> run.err));
        Exit.setExitProcedure(JavaTools::exit);
        Exit.setHaltProcedure(JavaTools::exit);
        Exit.setShutdownHookAdder((name, hook) -> { }); // ConsoleConsumer's is for who ends it by a signal
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8).split("\0", -1);
            Run run = new Run();
            Thread thread = new Thread(() -> run.play(words[0], Arrays.copyOfRange(words, 1, words.length)));
            thread.start();
            thread.join();
            answers.println("ended " + run.status.join() + " " + encoded(run.out) + " " + encoded(run.err));
        }
        System.exit(0); // a thread that a tool has left behind would keep the process
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    /** What comes after an exit is not said by a process of its own either. */
    private static PrintStream streamOf(Function<Run, ByteArrayOutputStream> which) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int one) {
                write(new byte[] {(byte) one}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int from, int size) {
                Run run = CURRENT.get();
                if (run != null && !run.status.isDone()) {
                    which.apply(run).write(bytes, from, size);
                }
            }
        }, true, StandardCharsets.UTF_8);
    }

    private static void exit(int status, String message) {
        CURRENT.get().status.complete(status);
        throw new Ended();
    }

    private static class Ended extends Error { }

    /** One tool, with the threads that it starts: what one of them says late is not said by the next tool. */
    private static class Run {
        final CompletableFuture<Integer> status = new CompletableFuture<>();
        final ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();

        void play(String tool, String[] arguments) {
            CURRENT.set(this);
            ClassLoader classes = new OwnClasses();
            Thread.currentThread().setContextClassLoader(classes);
            try {
                classes.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
                status.complete(0);
            } catch (Throwable failure) {
                failure.printStackTrace(); // into nothing after an exit
                status.complete(1);
            }
        }
    }

    /** Each run has the tool's own classes anew: ConsoleConsumer, for one, counts messages in a static field. */
    private static class OwnClasses extends ClassLoader {
        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.admin.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found == null ? read(name) : found;
            }
        }

        private Class<?> read(String name) throws ClassNotFoundException {
            try (InputStream file = getResourceAsStream(name.replace('.', '/') + ".class")) {
                byte[] bytes = file.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException | NullPointerException failure) { // null: there is no such file
                throw new ClassNotFoundException(name, failure);
            }
        }
    }
}
