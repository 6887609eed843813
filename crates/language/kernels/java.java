// The Java context kernel (JDK 17 or later): runs cells, keeps their state, reports what they produced.
// README.md beside this file is the protocol. One process is one context. The launcher compiles this file when it starts.
//
// Cells are snippets of JShell, which runs them in this process: what they print is what the process prints.
//
// User code shares this process and can do anything to it. The only promise is that nothing it prints is taken for a frame.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;

import jdk.jshell.DeclarationSnippet;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.TypeDeclSnippet;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.execution.LocalExecutionControlProvider;

final class Kernel {
    static final int PROTOCOL = 1;
    static final int MAX_FRAME = 1 << 20;
    static final int MAX_MESSAGE = 128 << 20;
    static final int AGAIN_MS = 50;
    static final int MOST_FRAMES = 50;
    /** What a notebook of Java has imported, as JShell's own default does. */
    static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*",
        "java.util.function.*", "java.util.regex.*", "java.util.stream.*",
    };
    static final String DISPLAY =
        "@SuppressWarnings(\"unchecked\") void display(Object value, String mime) {"
            + " Object shows = System.out instanceof java.util.function.BiConsumer ? System.out : System.err;"
            + " ((java.util.function.BiConsumer<Object, String>) shows).accept(value, mime); }";

    private final Channel channel;
    private final JShell shell;
    private final SourceCodeAnalysis analysis;
    private volatile String cell = "null";
    private int count;
    /** Held while a cell begins or ends, so that an interrupt hits a cell or nothing. */
    private final Object moment = new Object();
    private boolean running;
    private boolean interrupted;

    Kernel(Channel channel) {
        this.channel = channel;
        PrintStream output = new Lines(FileDescriptor.out, this);
        PrintStream errors = new Lines(FileDescriptor.err, this);
        System.setOut(output);
        System.setErr(errors);
        shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        analysis = shell.sourceCodeAnalysis();
        String path = System.getProperty("java.class.path");
        if (path != null && !path.isEmpty()) shell.addToClasspath(path);
        for (String name : IMPORTS) shell.eval("import " + name + ";");
        shell.eval(DISPLAY);
    }

    /** Whole lines in one write each, and the way by which cells display. */
    static final class Lines extends PrintStream implements BiConsumer<Object, String> {
        private final Kernel kernel;

        Lines(FileDescriptor descriptor, Kernel kernel) {
            super(new BufferedOutputStream(new FileOutputStream(descriptor), 8192), true, StandardCharsets.UTF_8);
            this.kernel = kernel;
        }

        @Override
        public void accept(Object value, String mime) {
            kernel.display(value, mime);
        }

        /** A program may close its output; the next cell still has one. */
        @Override
        public void close() {
            flush();
        }
    }

    // Frames

    static final class Channel {
        private final InputStream in;
        private final OutputStream out;
        private byte[] held = new byte[0];

        Channel(int readFrom, int writeTo) throws ReflectiveOperationException {
            in = new BufferedInputStream(new FileInputStream(descriptor(readFrom)));
            out = new FileOutputStream(descriptor(writeTo));
        }

        /** Java has no other way to a descriptor that it did not open itself. */
        private static FileDescriptor descriptor(int number) throws ReflectiveOperationException {
            var descriptor = new FileDescriptor();
            var field = FileDescriptor.class.getDeclaredField("fd");
            field.setAccessible(true);
            field.setInt(descriptor, number);
            return descriptor;
        }

        /** The next message, or null when the controller has gone. */
        String receive() throws IOException {
            var body = new java.io.ByteArrayOutputStream();
            int word;
            do {
                byte[] header = in.readNBytes(4);
                if (header.length < 4) return null;
                word = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN).getInt();
                int size = word & Integer.MAX_VALUE;
                if (size > MAX_FRAME || body.size() + size > MAX_MESSAGE) throw new IOException("frame or message over its maximum");
                byte[] piece = in.readNBytes(size);
                if (piece.length < size) return null;
                body.write(piece);
            } while (word < 0);
            return body.toString(StandardCharsets.UTF_8);
        }

        /** Sends a message. One that is held goes out with the next. */
        synchronized void send(String message, boolean hold) throws IOException {
            byte[] body = message.getBytes(StandardCharsets.UTF_8);
            var frames = new java.io.ByteArrayOutputStream(held.length + body.length + 4);
            frames.write(held);
            for (int start = 0; start < body.length; start += MAX_FRAME) {
                int size = Math.min(MAX_FRAME, body.length - start);
                int more = start + size < body.length ? Integer.MIN_VALUE : 0;
                frames.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(size | more).array());
                frames.write(body, start, size);
            }
            held = hold ? frames.toByteArray() : new byte[0];
            if (!hold) frames.writeTo(out);
        }
    }

    // JSON

    /** The fields of an object: texts as they are meant, everything else as it is written. */
    static final class Fields {
        private final String text;
        private int at;

        private Fields(String text) {
            this.text = text;
        }

        static Map<String, String> of(String text) throws IOException {
            try {
                return new Fields(text).object();
            } catch (IndexOutOfBoundsException | NumberFormatException error) {
                throw new IOException("message is not JSON");
            }
        }

        private Map<String, String> object() throws IOException {
            var fields = new HashMap<String, String>();
            if (next() != '{') throw new IOException("message is not an object");
            at++;
            while (next() != '}') {
                if (text.charAt(at) == ',') at++;
                if (next() != '"') throw new IOException("message is not JSON");
                String name = string();
                if (next() != ':') throw new IOException("message is not JSON");
                at++;
                next();
                int begin = at;
                String value = text.charAt(at) == '"' ? string() : skipped();
                fields.put(name, value);
                fields.put(name + " as written", text.substring(begin, at));
            }
            return fields;
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) at++;
            return text.charAt(at);
        }

        private String string() {
            var meant = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char character = text.charAt(at);
                if (character != '\\') {
                    meant.append(character);
                    continue;
                }
                character = text.charAt(++at);
                int simple = "nrtbf".indexOf(character);
                if (simple >= 0) {
                    meant.append("\n\r\t\b\f".charAt(simple));
                } else if (character == 'u') {
                    meant.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    meant.append(character);
                }
            }
            at++;
            return meant.toString();
        }

        private String skipped() {
            int begin = at;
            for (int depth = 0; ; at++) {
                char character = text.charAt(at);
                if (depth == 0 && (character == ',' || character == '}')) break;
                if (character == '"') {
                    string();
                    at--;
                } else if (character == '{' || character == '[') {
                    depth++;
                } else if (character == '}' || character == ']') {
                    depth--;
                }
            }
            return text.substring(begin, at).strip();
        }
    }

    static String quoted(String text) {
        var written = new StringBuilder(text.length() + 2).append('"');
        for (int at = 0; at < text.length(); at++) {
            char character = text.charAt(at);
            if (character == '"' || character == '\\') {
                written.append('\\').append(character);
            } else if (character == '\n') {
                written.append("\\n");
            } else if (character < ' ') {
                written.append(String.format("\\u%04x", (int) character));
            } else {
                written.append(character);
            }
        }
        return written.append('"').toString();
    }

    static String object(Object... namesAndValues) {
        var fields = new ArrayList<String>();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            fields.add(quoted((String) namesAndValues[at]) + ":" + namesAndValues[at + 1]);
        }
        return "{" + String.join(",", fields) + "}";
    }

    private void say(String message, boolean hold) {
        System.out.flush();
        System.err.flush();
        try {
            channel.send(message, hold);
        } catch (IOException error) {
            Runtime.getRuntime().halt(1);
        }
    }

    private void show(String type, String data, boolean hold) {
        String message = object("type", quoted(type), "id", cell, "data", data, "metadata", "{}");
        int size = message.length() > MAX_MESSAGE / 3 ? message.getBytes(StandardCharsets.UTF_8).length : 0;
        if (size > MAX_MESSAGE) {
            String note = object("text/plain", quoted("<" + size + " bytes: over the maximum of " + MAX_MESSAGE + ">"));
            message = object("type", quoted(type), "id", cell, "data", note, "metadata", "{\"truncated\":true}");
        }
        say(message, hold);
    }

    void display(Object value, String mime) {
        boolean isJson = mime.equals("application/json") || mime.endsWith("+json");
        String data = value instanceof byte[] bytes ? Base64.getEncoder().encodeToString(bytes) : String.valueOf(value);
        if (mime.equals("text/plain")) show("display", object(mime, quoted(data)), false);
        else show("display", object("text/plain", quoted("<" + mime + ">"), mime, isJson ? data : quoted(data)), false);
    }

    // Cells

    /** Why a cell did not come to its end. */
    static final class Problem extends Exception {
        final String name;
        final List<String> lines;

        Problem(String name, String value, List<String> lines) {
            super(value);
            this.name = name;
            this.lines = lines;
        }
    }

    void serve() throws IOException {
        say(object("type", quoted("ready"), "protocol", PROTOCOL, "language", quoted("java"), "version", quoted(version())), false);
        for (String text; (text = channel.receive()) != null; ) {
            Map<String, String> message = Fields.of(text);
            String type = message.getOrDefault("type", "");
            if (type.equals("shutdown")) return;
            if (!type.equals("execute") || !message.getOrDefault("code as written", "").startsWith("\"")) throw new IOException("unknown message");
            execute(message.getOrDefault("id as written", "null"), message.get("code"), isTrue(message, "silent"), isTrue(message, "late_start"));
        }
    }

    private static String version() {
        return Runtime.version().version().stream().map(String::valueOf).collect(Collectors.joining(".")).concat(".0").replaceFirst("^(\\d+\\.\\d+.*?)\\.0$", "$1");
    }

    private static boolean isTrue(Map<String, String> message, String name) {
        return message.getOrDefault(name, "").equals("true");
    }

    private void execute(String id, String code, boolean silent, boolean lateStart) {
        if (!silent) count++;
        synchronized (moment) {
            cell = id;
            running = true;
            interrupted = false;
        }
        say(object("type", quoted("start"), "id", id, "execution_count", count), lateStart);
        Problem problem = null;
        try {
            String value = run(code);
            if (value != null && !silent) show("result", object("text/plain", quoted(value)), true);
        } catch (Problem found) {
            problem = found;
        } catch (RuntimeException | Error error) {
            problem = new Problem(error.getClass().getName(), String.valueOf(error.getMessage()), List.of(error.toString()));
        }
        String status = problem == null ? "ok" : "error";
        synchronized (moment) {
            running = false;
            // A cell that came to its end before the interrupt was not interrupted.
            if (interrupted && (problem == null || problem.name.equals("Interrupted") || problem.name.equals("java.lang.ThreadDeath"))) {
                problem = new Problem("Interrupted", "the cell was interrupted", List.of("Interrupted: the cell was interrupted"));
                status = "interrupted";
            }
        }
        if (problem != null) {
            String lines = problem.lines.stream().map(Kernel::quoted).collect(Collectors.joining(",", "[", "]"));
            say(object("type", quoted("error"), "id", id, "name", quoted(problem.name), "value", quoted(problem.getMessage()), "traceback", lines), true);
        }
        say(object("type", quoted("done"), "id", id, "status", quoted(status), "execution_count", count), false);
    }

    void interrupt() {
        synchronized (moment) {
            if (!running) return;
            if (interrupted) return;
            interrupted = true;
        }
        // What is compiled now begins soon: asked for until the cell has ended.
        var stopper = new Thread(() -> {
            String stopped = cell;
            while (true) {
                synchronized (moment) {
                    if (!running || !interrupted || !stopped.equals(cell)) return;
                    shell.stop();
                }
                try {
                    Thread.sleep(AGAIN_MS);
                } catch (InterruptedException error) {
                    return;
                }
            }
        });
        stopper.setDaemon(true);
        stopper.start();
    }

    private void checkInterrupt() throws Problem {
        synchronized (moment) {
            if (interrupted) throw new Problem("Interrupted", "", List.of());
        }
    }

    /** Runs the snippets of a cell. Gives the value of the last one where it is an expression without a semicolon. */
    private String run(String code) throws Problem {
        String value = null;
        var programs = new ArrayList<String>();
        boolean onlyDeclares = true;
        for (String rest = code; !rest.isBlank(); ) {
            checkInterrupt();
            SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(rest);
            if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY) break;
            if (info.completeness() == SourceCodeAnalysis.Completeness.DEFINITELY_INCOMPLETE) {
                throw new Problem("CompilationError", "the code ends too early", List.of(rest.strip(), "the code ends too early"));
            }
            String source = info.source() == null ? rest : info.source();
            rest = info.source() == null ? "" : info.remaining();
            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                checkInterrupt();
                check(event, source);
                if (event.causeSnippet() != null) continue;
                Snippet snippet = event.snippet();
                if (rest.isBlank() && isExpression(snippet) && !code.stripTrailing().endsWith(";")) value = event.value();
                onlyDeclares &= snippet.kind() == Snippet.Kind.IMPORT || snippet.kind() == Snippet.Kind.TYPE_DECL;
                if (snippet instanceof TypeDeclSnippet type && source.matches("(?s).*\\bstatic\\s+void\\s+main\\s*\\(.*")) programs.add(type.name());
            }
        }
        // A whole program, as a file of Java holds it.
        if (onlyDeclares && programs.size() == 1) {
            String source = programs.get(0) + ".main(new String[0]);";
            for (SnippetEvent event : shell.eval(source)) check(event, source);
            checkInterrupt();
        }
        return value;
    }

    private static boolean isExpression(Snippet snippet) {
        return snippet.kind() == Snippet.Kind.EXPRESSION || snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    private void check(SnippetEvent event, String source) throws Problem {
        Snippet snippet = event.snippet();
        if (event.status() == Snippet.Status.REJECTED) {
            var errors = shell.diagnostics(snippet).filter(Diag::isError).toList();
            if (errors.isEmpty()) throw new Problem("CompilationError", "the code was refused", List.of());
            var lines = new ArrayList<String>();
            for (Diag error : errors) lines.addAll(marked(source, error));
            throw new Problem("CompilationError", errors.get(0).getMessage(Locale.ENGLISH), lines);
        }
        if (event.exception() != null) throw problem(event.exception());
        if (event.status() == Snippet.Status.RECOVERABLE_NOT_DEFINED && snippet instanceof DeclarationSnippet declaration) {
            String missing = shell.unresolvedDependencies(declaration).collect(Collectors.joining(", "));
            throw new Problem("CompilationError", "cannot find symbol: " + missing, List.of(source.strip(), "cannot find symbol: " + missing));
        }
    }

    /** The line of an error, with a mark below its place. */
    private static List<String> marked(String source, Diag error) {
        int place = (int) Math.max(0, Math.min(error.getPosition(), source.length()));
        int begin = source.lastIndexOf('\n', place - 1) + 1;
        int end = source.indexOf('\n', place);
        String line = source.substring(begin, end < 0 ? source.length() : end);
        var lines = new ArrayList<>(List.of(line, " ".repeat(place - begin) + "^"));
        lines.addAll(Arrays.asList(error.getMessage(Locale.ENGLISH).split("\n")));
        return lines;
    }

    private Problem problem(JShellException thrown) {
        var lines = new ArrayList<String>();
        String name = "";
        String value = "";
        for (Throwable part = thrown; part != null; part = part.getCause()) {
            String partName = part.getClass().getName();
            String message = part.getMessage();
            if (part instanceof EvalException evaluated) {
                partName = evaluated.getExceptionClassName();
            } else if (part instanceof UnresolvedReferenceException reference) {
                partName = "UnresolvedReference";
                message = "cannot find symbol: " + shell.unresolvedDependencies(reference.getSnippet()).collect(Collectors.joining(", "));
            }
            String text = message == null ? partName : partName + ": " + message;
            if (lines.isEmpty()) {
                name = partName;
                value = message == null ? "" : message;
                lines.add(text);
            } else {
                lines.add("Caused by: " + text);
            }
            StackTraceElement[] frames = part.getStackTrace();
            for (StackTraceElement frame : Arrays.asList(frames).subList(0, Math.min(MOST_FRAMES, frames.length))) {
                if (frame.getMethodName().equals("do_it$")) {
                    lines.add("    at " + frame.getFileName() + ":" + frame.getLineNumber());
                    break;
                }
                lines.add("    at " + frame);
            }
            if (frames.length > MOST_FRAMES) lines.add("    ... " + (frames.length - MOST_FRAMES) + " more");
        }
        return new Problem(name, value, lines);
    }

    private static String variable(String name) {
        String value = System.getenv(name);
        return value == null ? System.getenv("SANDSTORM_KERNEL_FD") : value;
    }

    /** Takes the kernel's variables out of what `System.getenv` and children see. */
    private static void hideVariables() {
        for (String name : new String[] {"theUnmodifiableEnvironment", "theEnvironment"}) {
            try {
                var field = Class.forName("java.lang.ProcessEnvironment").getDeclaredField(name);
                field.setAccessible(true);
                Object map = field.get(null);
                if (name.equals("theUnmodifiableEnvironment")) {
                    var inner = map.getClass().getDeclaredField("m");
                    inner.setAccessible(true);
                    map = inner.get(map);
                }
                ((Map<?, ?>) map).keySet().removeIf(key -> key.toString().startsWith("SANDSTORM_KERNEL_"));
            } catch (ReflectiveOperationException | RuntimeException error) {
                // They tell a program nothing that it could not find out.
            }
        }
    }

    public static void main(String[] arguments) {
        if (System.getenv("SANDSTORM_KERNEL_NONCE") != null) {
            System.err.println("the kernel of Java needs a descriptor of its own");
            System.exit(2);
        }
        String readFrom = variable("SANDSTORM_KERNEL_IN");
        String writeTo = variable("SANDSTORM_KERNEL_OUT");
        if (readFrom == null || writeTo == null) {
            System.err.println("this is the kernel of a context: it needs SANDSTORM_KERNEL_FD, or SANDSTORM_KERNEL_IN and _OUT");
            System.exit(2);
        }
        int status = 0;
        try {
            var channel = new Channel(Integer.parseInt(readFrom), Integer.parseInt(writeTo));
            hideVariables();
            var kernel = new Kernel(channel);
            sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> kernel.interrupt());
            kernel.serve();
        } catch (IOException | ReflectiveOperationException error) {
            System.err.println("kernel: " + error.getMessage());
            status = 70;
        }
        System.exit(status);
    }
}
