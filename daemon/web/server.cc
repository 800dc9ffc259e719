#include "web/server.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/mutex.h"
#include "web/bounded_stream.h"
#include "web/json.h"
#include "web/worker_pool.h"

namespace gyrostat::web {
namespace {

// "localhost:7432" → "localhost", "[::1]:7432" → "::1".
std::string_view HostOf(std::string_view header) {
  if (!header.empty() && header.front() == '[') return header.substr(1, header.find(']') - 1);
  return header.substr(0, header.find(':'));
}

// Between two tries to get the port back.
constexpr base::Milliseconds kRebindPause{200};

// The connection that this thread serves.
struct Connection {
  BoundedStream* stream = nullptr;
  std::string accept_encoding;  // Of "/", whose answer is packed already: the library must not pack it again.
  std::function<void(int)> take_over;
};
thread_local Connection* connection = nullptr;

constexpr std::string_view kApi = "/api/";

Request ToRequest(const httplib::Request& in) {
  Request out;
  out.method = in.method == "HEAD" ? "GET" : in.method;
  out.path = in.path;
  out.query = in.params;
  out.body = in.body;
  out.host = in.get_header_value("Host");
  out.origin = in.get_header_value("Origin");
  out.fetch_site = in.get_header_value("Sec-Fetch-Site");
  out.marker = in.get_header_value("X-Gyrostat");
  out.accept = in.get_header_value("Accept");
  out.accept_encoding = connection->accept_encoding;
  out.content_type = in.get_header_value("Content-Type");
  out.content_encoding = in.get_header_value("Content-Encoding");
  return out;
}

Reply Text(int status, std::string body) { return Reply{status, "text/plain; charset=utf-8", std::move(body)}; }

}  // namespace

// The library parses requests and writes answers; sockets, bounds and routing are ours.
struct Server::Impl final : public httplib::Server {
  Impl(const ServerOptions& o, std::map<std::string, Route> r, Site here, Probe* p, const base::Clock* c)
      : options(o), routes(std::move(r)), site(std::move(here)), probe(p), clock(c), stop_fd(eventfd(0, EFD_CLOEXEC)) {
    // Without SO_REUSEPORT, the library's default, with which two daemons could share one port unnoticed.
    set_socket_options([](socket_t s) {
      const int yes = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    new_task_queue = [this] { return new WorkerPool(options.threads, options.connections_waiting_max); };
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      std::optional<Reply> reply = ReplyTo(request);
      if (!reply) return HandlerResponse::Unhandled;
      Answer(request, *std::move(reply), &response);
      return HandlerResponse::Handled;
    });
    // What the site did not refuse: its body is there now.
    set_payload_max_length(kBodyBytesMax);
    Post("/api/.+", [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, site.answer(ToRequest(request)), &response);
    });
    // Nobody is asked to send a body.
    set_expect_100_continue_handler([](const httplib::Request&, httplib::Response&) { return 417; });
    set_default_headers({{"Cache-Control", "no-store"},
                         {"X-Content-Type-Options", "nosniff"},
                         {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}});
  }
  ~Impl() override { close(stop_fd); }

  // Nothing: the body is wanted first.
  std::optional<Reply> ReplyTo(const httplib::Request& request) {
    if (request.get_header_value_count("Host") != 1 && request.version != "HTTP/1.0")
      return Text(400, "exactly one Host header is wanted\n");
    const std::string host = request.get_header_value("Host");
    if (!host.empty() && !base::IsLoopbackHost(HostOf(host)))
      return Text(403, "Host is not a name of this machine's loopback; use 127.0.0.1, [::1] or localhost\n");
    if (site.answer && request.path.starts_with(kApi)) return ApiReplyTo(request);
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (site.front && request.path == "/" && reads) return site.front(ToRequest(request));
    const auto route = routes.find(request.path);
    if (route == routes.end()) {
      std::string known;
      for (const auto& [path, unused] : routes) known += " " + path;
      return Text(404, "not found; there are:" + known + "\n");
    }
    if (!reads) return Text(405, "only GET and HEAD\n");
    return route->second(request.params);
  }

  std::optional<Reply> ApiReplyTo(const httplib::Request& request) {
    Request asked = ToRequest(request);
    if (std::optional<Reply> refusal = site.refuse(asked)) return refusal;
    if (request.method != "POST") return site.answer(asked);
    // Of a body only the plain kind with its length said is read.
    if (request.has_header("Transfer-Encoding") || request.get_header_value_count("Content-Length") != 1)
      return JsonError(411, "wanted: exactly one Content-Length, and no Transfer-Encoding");
    const std::string length = request.get_header_value("Content-Length");
    if (length.size() > 5 || length.find_first_not_of("0123456789") != std::string::npos ||
        std::stoul("0" + length) > kBodyBytesMax)
      return JsonError(413, "Content-Length is " + length.substr(0, 20) + ", wanted at most " +
                           std::to_string(kBodyBytesMax));
    return std::nullopt;
  }

  void Answer(const httplib::Request& request, Reply reply, httplib::Response* response) {
    probe->requests_total.Add();
    if (reply.status >= 400 && reply.status < 500) probe->requests_refused_total.Add();
    response->status = reply.status;
    if (reply.status == 405) response->set_header("Allow", "GET, HEAD");
    for (const auto& [name, value] : reply.headers) {
      response->headers.erase(name);
      response->set_header(name, value);
    }
    if (reply.take_over && request.method == "GET") {
      connection->stream->Mute();
      connection->take_over = std::move(reply.take_over);
      return;
    }
    response->set_content(reply.body, reply.content_type);
  }

  // Says that an event stream follows and gives the socket away. False: the peer is gone.
  bool HandOver(BoundedStream* stream, socket_t socket, const std::function<void(int)>& take_over) {
    if (!stream->Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
                      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"))
      return false;
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    take_over(socket);
    return true;
  }

  // Runs on a worker, or on the accepting thread when there is no room for the connection.
  bool process_and_close_socket(socket_t socket) override {
    bool ok = false;
    if (WorkerPool::MustRefuse()) {
      probe->connections_dropped_total.Add();
    } else {
      BoundedStream stream(socket, stop_fd, options.request_timeout, clock);
      bool closed = false;
      Connection mine{&stream, {}, {}};
      connection = &mine;
      ok = process_request(stream, true, closed, [&mine](httplib::Request& request) {
        // Ranges are ignored: many that overlap would make a large answer out of a small one.
        request.ranges.clear();
        mine.accept_encoding = request.get_header_value("Accept-Encoding");
        if (request.path == "/") request.headers.erase("Accept-Encoding");
      });
      connection = nullptr;
      if (mine.take_over && HandOver(&stream, socket, mine.take_over)) return ok;
      if (stream.timed_out()) probe->request_timeouts_total.Add();
      stream.Finish();
    }
    close(socket);
    return ok;
  }

  // Accepts until Stop. The library gives its port up after some errors of accept (no memory, no descriptors): then the
  // same port is bound again.
  void Serve() {
    while (true) {
      listen_after_bind();
      base::MutexLock lock(mutex);
      if (!stopping) wake.WaitUntil(mutex, clock->Now() + kRebindPause);
      if (stopping) return;
      probe->rebinds_total.Add();
      bind_to_port(endpoint.host, endpoint.port);
    }
  }

  void Stop() {
    {
      base::MutexLock lock(mutex);
      if (std::exchange(stopping, true)) return;
      // Not httplib's stop(): that does nothing when the accepting thread has not come round yet.
      const socket_t listening = svr_sock_.exchange(INVALID_SOCKET);
      if (listening != INVALID_SOCKET) {
        shutdown(listening, SHUT_RDWR);
        close(listening);
      }
    }
    wake.NotifyAll();
    const uint64_t one = 1;
    GYROSTAT_CHECK(write(stop_fd, &one, sizeof(one)) == sizeof(one));
    acceptor.join();
  }

  const ServerOptions options;
  const std::map<std::string, Route> routes;
  const Site site;
  Probe* const probe;
  const base::Clock* const clock;
  const int stop_fd;  // Readable once stopping: ends every wait for a request.
  base::Endpoint endpoint;
  base::Mutex mutex;
  base::CondVar wake;
  bool stopping GYROSTAT_GUARDED_BY(mutex) = false;
  std::thread acceptor;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const base::Endpoint& listen, const ServerOptions& options,
                                                      std::map<std::string, Route> routes, Probe* probe,
                                                      const base::Clock* clock, Site site) {
  auto impl = std::make_unique<Impl>(options, std::move(routes), std::move(site), probe, clock);
  impl->endpoint = listen;
  errno = 0;
  if (listen.port == 0) {
    const int port = impl->bind_to_any_port(listen.host);
    if (port > 0) impl->endpoint.port = static_cast<uint16_t>(port);
  } else if (!impl->bind_to_port(listen.host, listen.port)) {
    impl->endpoint.port = 0;
  }
  if (impl->endpoint.port == 0) {
    return absl::UnavailableError("cannot listen on http address " + listen.ToString() + ": " +
                                  (errno != 0 ? std::strerror(errno) : "the address cannot be resolved"));
  }
  impl->acceptor = std::thread([raw = impl.get()] { raw->Serve(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Stop(); }
const base::Endpoint& Server::endpoint() const { return impl_->endpoint; }
void Server::Stop() { impl_->Stop(); }

}  // namespace gyrostat::web
