// A request and its answer as handlers see them, without the HTTP library. Plain values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gyrostat::web {

// What follows the question mark, decoded; a name may come more than once.
using Query = std::multimap<std::string, std::string>;

// One request. Header fields that did not come are empty.
struct Request {
  std::string method;  // "GET"; HEAD is answered like GET.
  std::string path;    // Decoded.
  Query query;
  std::string body;    // Only of a POST that was asked for one; at most kBodyBytesMax.
  std::string host, origin, fetch_site, marker;  // Host, Origin, Sec-Fetch-Site, X-Gyrostat.
  std::string accept, accept_encoding, content_type, content_encoding;
};

// What people send is a reason and a name.
inline constexpr size_t kBodyBytesMax = 8 << 10;

struct Reply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // Replace the server's own of the same name.
  // Where set, status and headers are sent without a body and the connection is handed over: the callee owns the
  // socket, which does not block.
  std::function<void(int socket)> take_over = {};
};

// Answers GET and HEAD of one target. Called on any of the server's threads, several at a time.
using Route = std::function<Reply(const Query&)>;

}  // namespace gyrostat::web
