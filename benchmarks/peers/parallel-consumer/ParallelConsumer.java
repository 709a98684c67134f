import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.vertx.VertxParallelEoSStreamProcessor;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.json.JsonArray;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.web.client.WebClient;
import io.vertx.ext.web.client.WebClientOptions;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's parallel consumer with its Vert.x module, key order: posts one retain for each record of TOPIC, for ever.
 * Usage: ParallelConsumer BOOTSTRAP TOPIC GROUP URL IN_FLIGHT
 */
public class ParallelConsumer {
  static final UUID NAMESPACE = UUID.fromString("5f0f0d5c-6d63-5f6e-9c38-0d1f6cbb7a51");

  record Call(String path, Buffer body) {}

  public static void main(String[] args) throws Exception {
    String bootstrap = args[0], topic = args[1], group = args[2], url = args[3];
    int inFlight = Integer.parseInt(args[4]);

    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("group.id", group);
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", "false");
    settings.put("max.poll.records", "1000");
    var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    var options = ParallelConsumerOptions.<byte[], byte[]>builder().consumer(consumer)
        .ordering(ProcessingOrder.KEY).maxConcurrency(inFlight)
        .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS).build();

    Vertx vertx = Vertx.vertx();
    WebClient client = WebClient.create(vertx, new WebClientOptions().setMaxPoolSize(inFlight).setKeepAlive(true));
    var processor = new VertxParallelEoSStreamProcessor<byte[], byte[]>(vertx, client, options);
    processor.subscribe(List.of(topic));
    processor.vertxFuture(record -> {
      Call call = retain(record.getSingleConsumerRecord().value());
      return client.postAbs(url + call.path).putHeader("content-type", "application/json")
          .putHeader("accept", "application/json").sendBuffer(call.body)
          .onSuccess(reply -> reply.bodyAsJsonObject());
    });
    Thread.currentThread().join();
  }

  /** What a worker sends to Hindsight for one comment event, with all its fields. */
  static Call retain(byte[] value) {
    JsonObject event = new JsonObject(Buffer.buffer(value));
    JsonObject comment = event.getJsonObject("payload").getJsonObject("comment");
    String id = comment.getString("id"), content = comment.getString("body");
    String company = event.getString("companyId"), agent = comment.getString("authorAgentId");
    String bank = "paperclip::" + company + "::" + agent;
    String operation = uuid5(new JsonArray().add(bank).add(id).add(content).add("").encode());
    JsonObject metadata = new JsonObject().put("agentId", agent).put("companyId", company)
        .put("issueId", event.getString("entityId")).put("commentId", id)
        .put("authorType", comment.getString("authorType"));
    JsonObject item = new JsonObject().put("content", content).put("context", "paperclip").put("document_id", id)
        .put("timestamp", comment.getString("createdAt")).put("metadata", metadata);
    JsonObject body = new JsonObject().put("items", new JsonArray().add(item)).put("async", true)
        .put("operation_id", operation);
    String path = "/v1/default/banks/" + URLEncoder.encode(bank, StandardCharsets.UTF_8) + "/memories";
    return new Call(path, body.toBuffer());
  }

  /** A UUID of version 5, which Java's library lacks. */
  static String uuid5(String name) {
    try {
      MessageDigest sha1 = MessageDigest.getInstance("SHA-1");
      sha1.update(ByteBuffer.allocate(16).putLong(NAMESPACE.getMostSignificantBits())
          .putLong(NAMESPACE.getLeastSignificantBits()).array());
      ByteBuffer hash = ByteBuffer.wrap(sha1.digest(name.getBytes(StandardCharsets.UTF_8)));
      long most = hash.getLong() & ~0xF000L | 0x5000L;
      long least = hash.getLong() & ~(3L << 62) | 2L << 62;
      return new UUID(most, least).toString();
    } catch (java.security.NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
