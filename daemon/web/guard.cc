#include "web/guard.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "base/text.h"
#include "web/json.h"

namespace gyrostat::web {
namespace {

// Longer than any path of the API with the longest of names.
constexpr size_t kPathBytesMax = 512;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

bool IsJson(std::string_view content_type) {
  const std::string type = Lower(content_type.substr(0, content_type.find(';')));
  return type.substr(0, type.find(' ')) == "application/json";
}

}  // namespace

std::optional<Reply> Refuse(const Request& request) {
  if (request.path.size() > kPathBytesMax)
    return JsonError(414, "the path has " + std::to_string(request.path.size()) + " bytes, wanted at most " +
                              std::to_string(kPathBytesMax));
  if (!request.origin.empty() && Lower(request.origin) != "http://" + Lower(request.host))
    return JsonError(403, "Origin is " + Quoted(request.origin) + ", wanted http://" +
                              base::CleanText(request.host, 64) + ": pages from elsewhere may not use this daemon");
  if (!request.fetch_site.empty() && request.fetch_site != "same-origin" && request.fetch_site != "none")
    return JsonError(403, "Sec-Fetch-Site is " + Quoted(request.fetch_site) +
                              ", wanted same-origin: pages from elsewhere may not use this daemon");
  if (request.method == "GET") return std::nullopt;
  if (request.method != "POST") {
    Reply reply = JsonError(405, "the method is " + Quoted(request.method) + ", wanted GET, HEAD or POST");
    reply.headers = {{"Allow", "GET, HEAD, POST"}};
    return reply;
  }
  if (request.host.empty()) return JsonError(400, "a POST wants a Host header");
  if (request.marker != "1")
    return JsonError(403, "the header X-Gyrostat: 1 is missing; without it a page from elsewhere could order things");
  if (!IsJson(request.content_type))
    return JsonError(415, "Content-Type is " + Quoted(request.content_type) + ", wanted application/json");
  if (!request.content_encoding.empty())
    return JsonError(415, "Content-Encoding is " + Quoted(request.content_encoding) + ", wanted none");
  return std::nullopt;
}

}  // namespace gyrostat::web
