// Writes and reads back N5 blocks with lz4-java, as org.janelia.saalfeldlab.n5.Lz4Compression does.
// Arguments: a file of lines "input output headerBytes blockSize flushEvery"; input is a header and the raw payload.

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import net.jpountz.lz4.LZ4BlockInputStream;
import net.jpountz.lz4.LZ4BlockOutputStream;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.xxhash.XXHashFactory;

class GenerateN5Lz4 {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] words = line.split("\t");
            byte[] input = Files.readAllBytes(Path.of(words[0]));
            int header = Integer.parseInt(words[2]), blockSize = Integer.parseInt(words[3]), flushEvery = Integer.parseInt(words[4]);
            try (OutputStream file = new FileOutputStream(words[1])) {
                file.write(input, 0, header);
                OutputStream lz4 = flushEvery == 0
                    ? new LZ4BlockOutputStream(file, blockSize)
                    : new LZ4BlockOutputStream(file, blockSize, LZ4Factory.fastestInstance().fastCompressor(),
                        XXHashFactory.fastestInstance().newStreamingHash32(0x9747b28c).asChecksum(), true);
                int step = flushEvery == 0 ? Math.max(1, input.length) : flushEvery;
                for (int i = header; i < input.length; i += step) {
                    lz4.write(input, i, Math.min(step, input.length - i));
                    if (flushEvery != 0) lz4.flush();
                }
                lz4.close();
            }
            byte[] output = Files.readAllBytes(Path.of(words[1]));
            ByteArrayInputStream stream = new ByteArrayInputStream(output, header, output.length - header);
            byte[] read = new byte[input.length - header];
            LZ4BlockInputStream lz4 = new LZ4BlockInputStream(stream);
            new DataInputStream(lz4).readFully(read);
            if (!Arrays.equals(read, Arrays.copyOfRange(input, header, input.length)) || lz4.read() != -1)
                throw new AssertionError(words[1]);
        }
    }
}
