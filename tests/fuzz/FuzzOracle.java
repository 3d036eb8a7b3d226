import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's own classes and writes what it has read.
 *
 * <p>Standard input: API key, version (shorts), 1 for a request (byte), length (int), bytes; again and again. Output for
 * each: length of what it wrote, or -1 where it refused or left bytes over, and the bytes.
 */
public final class FuzzOracle {
    private FuzzOracle() {}

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        while (true) {
            short key;
            try {
                key = in.readShort();
            } catch (EOFException end) {
                out.flush();
                return;
            }
            short version = in.readShort();
            boolean isRequest = in.readByte() == 1;
            byte[] body = new byte[in.readInt()];
            in.readFully(body);
            byte[] written = readAndWrite(key, version, isRequest, body);
            if (written == null) {
                out.writeInt(-1);
            } else {
                out.writeInt(written.length);
                out.write(written);
            }
        }
    }

    private static byte[] readAndWrite(short key, short version, boolean isRequest, byte[] body) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        ApiMessage message = isRequest ? type.newRequest() : type.newResponse();
        try {
            ByteBuffer buffer = ByteBuffer.wrap(body);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return null;
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer made = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(made), cache, version);
            return made.array();
        } catch (RuntimeException refused) {
            return null;
        }
    }
}
