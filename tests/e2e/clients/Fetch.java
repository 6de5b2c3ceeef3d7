import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Java's own client, over both versions of HTTP. */
public class Fetch {
    public static void main(String[] arguments) throws Exception {
        for (HttpClient.Version version : HttpClient.Version.values()) {
            HttpClient client = HttpClient.newBuilder().version(version).build();
            HttpRequest get = HttpRequest.newBuilder(URI.create("https://web.clients.example/hello")).build();
            HttpResponse<String> page = client.send(get, HttpResponse.BodyHandlers.ofString());
            HttpRequest post = HttpRequest.newBuilder(URI.create("https://web.clients.example/sum"))
                .POST(HttpRequest.BodyPublishers.ofString("z".repeat(1 << 20)))
                .expectContinue(version == HttpClient.Version.HTTP_1_1).build();
            HttpResponse<String> sent = client.send(post, HttpResponse.BodyHandlers.ofString());
            if (page.version() != version || !page.body().contains("web.clients.example")
                || !sent.body().contains("1048576")) {
                throw new IllegalStateException(page + page.body() + sent + sent.body());
            }
            System.out.println("java " + version + " ok");
        }
    }
}
