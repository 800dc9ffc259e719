// YAML text → a flat list of what it says, with line numbers. yaml_reader.cc is the only file that knows yaml-cpp.
//
// A configuration needs maps, plain values, and lists of either. Anchors, aliases, other documents and deeper nesting
// are refused, so that a small file cannot become a large one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyrostat::config {

struct Entry {
  enum class Kind { kScalar, kList, kMap, kNull, kMapList };
  std::string path;  // Keys joined by dots: "policy.qk_clip.tau". Maps in a list are numbered: "webhooks[0].url".
  int line = 0;      // From 1.
  Kind kind = Kind::kScalar;
  std::string text;                // Of a scalar.
  std::vector<std::string> items;  // Of a list of plain values.
};

struct Complaint {
  int line = 0;  // 0: about no line.
  std::string text;
};

struct YamlContent {
  std::vector<Entry> entries;  // In the order of the file; a map comes before what is in it.
  std::vector<Complaint> complaints;
};

// Never fails: what cannot be read becomes complaints. `text` may be anything.
YamlContent ReadYaml(std::string_view text);

}  // namespace gyrostat::config
