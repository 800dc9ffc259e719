#include "web/page.h"

#include <string>
#include <string_view>

#include "web/assets.h"

namespace gyrostat::web {

bool HasPage() { return kPageHtmlGz.bytes.starts_with("\x1f\x8b"); }

std::optional<Reply> Page(const Request& request) {
  const bool takes_it = request.accept.find("text/html") != std::string::npos &&
                        request.accept_encoding.find("gzip") != std::string::npos;
  if (!HasPage() || !takes_it) return std::nullopt;
  Reply reply;
  reply.content_type = "text/html; charset=utf-8";
  reply.body = std::string(kPageHtmlGz.bytes);
  reply.headers = {{"Content-Encoding", "gzip"},
                   {"Vary", "Accept, Accept-Encoding"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Content-Security-Policy", std::string(kPageCsp.bytes)}};
  return reply;
}

}  // namespace gyrostat::web
