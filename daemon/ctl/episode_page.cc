#include "ctl/episode_page.h"

#include <algorithm>
#include <string_view>

#include "ctl/render.h"

namespace gyrostat::ctl {
namespace {

constexpr std::string_view kBullet = "  - ";

std::string Upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

// Tinted line by line: a colour that runs over a line's end would colour the prompt of whoever cuts the text.
std::string Tinted(const Style& style, Tint tint, const std::string& lines) {
  std::string out;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    out += Paint(style, tint, lines.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string RenderEpisode(const std::string& severity, const std::string& page, const Style& style) {
  std::string out;
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string line = page.substr(at, end - at);
    if (at == 0) {
      out += Tinted(style, TintOfSeverity(severity), Wrap(style, Upper(severity) + "  " + line, 0));
    } else if (line.empty()) {
      out += "\n";
    } else if (line.starts_with(kBullet)) {
      const std::string wrapped = Wrap(style, line.substr(kBullet.size()), kBullet.size());
      out += std::string(kBullet) + wrapped.substr(kBullet.size());
    } else {
      out += Wrap(style, line, 0);
    }
    at = end + 1;
  }
  return out;
}

}  // namespace gyrostat::ctl
