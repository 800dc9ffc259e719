#include "config/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <optional>
#include <sstream>
#include <utility>

namespace gyrostat::config {
namespace {

// The longest key has three parts; more is a mistake, and deep nesting is somebody's experiment.
constexpr size_t kDepthMax = 8;
// A file with that many is not a configuration. Keeps the answer to hostile input short.
constexpr size_t kComplaintsMax = 50;
constexpr size_t kMapsMax = 64;  // In one list.
constexpr char kMixed[] = "a list may hold plain values or maps, not both";

// Follows the parser's events and keeps the path.
class Flattener final : public YAML::EventHandler {
 public:
  explicit Flattener(YamlContent* content) : content_(content) {}

  void OnDocumentStart(const YAML::Mark&) override { frames_.clear(); }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Plain(mark, anchor, Entry::Kind::kNull, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Complain(mark, "aliases (*name) are not accepted; write the value out");
    Plain(mark, 0, Entry::Kind::kNull, "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& value) override {
    Plain(mark, anchor, Entry::Kind::kScalar, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, anchor, Frame::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, anchor, Frame::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    enum class Kind { kMap, kList, kIgnored } kind;
    std::string path;                // Of the map or list itself.
    std::optional<std::string> key;  // Of a map: the key whose value comes next,
    int key_line = 0;                // and where it stands.
    size_t entry = 0;                // Of a list: its place in `entries`,
    size_t maps = 0;                 // and how many maps it holds so far.
  };

  void Complain(const YAML::Mark& mark, std::string text) {
    if (content_->complaints.size() < kComplaintsMax) content_->complaints.push_back({mark.line + 1, std::move(text)});
  }
  void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) Complain(mark, "anchors (&name) are not accepted; write the value out");
  }

  // Begins the entry of the value that comes now; false where it belongs to no key.
  bool Begin(Entry::Kind kind, const std::string& text) {
    Frame& map = frames_.back();
    if (!map.key) return false;
    std::string path = map.path.empty() ? *map.key : map.path + "." + *map.key;
    content_->entries.push_back({std::move(path), map.key_line, kind, text, {}});
    map.key.reset();
    return true;
  }

  void Plain(const YAML::Mark& mark, YAML::anchor_t anchor, Entry::Kind kind, const std::string& value) {
    RefuseAnchor(mark, anchor);
    if (frames_.empty()) {
      if (kind != Entry::Kind::kNull) Complain(mark, "saw a plain value, accepted is a map of keys");
      return;
    }
    Frame& frame = frames_.back();
    if (frame.kind == Frame::Kind::kIgnored) return;
    if (frame.kind == Frame::Kind::kList) {
      if (frame.maps > 0) return Complain(mark, kMixed);
      content_->entries[frame.entry].items.push_back(value);
    } else if (!Begin(kind, value)) {
      frame.key = value;
      frame.key_line = mark.line + 1;
    }
  }

  void Open(const YAML::Mark& mark, YAML::anchor_t anchor, Frame::Kind kind) {
    RefuseAnchor(mark, anchor);
    if (frames_.empty()) {
      if (kind == Frame::Kind::kList) Complain(mark, "saw a list, accepted is a map of keys");
      return Push(kind == Frame::Kind::kMap ? kind : Frame::Kind::kIgnored);
    }
    if (frames_.back().kind == Frame::Kind::kMap) {
      if (!Begin(kind == Frame::Kind::kMap ? Entry::Kind::kMap : Entry::Kind::kList, "")) {
        Complain(mark, "a key must be a plain word");
        frames_.back().key = "?";  // So that the value which follows is not taken for a key.
      } else if (frames_.size() < kDepthMax) {
        return Push(kind, content_->entries.back().path, content_->entries.size() - 1);
      } else {
        Complain(mark, "nested deeper than any key");
      }
    } else if (frames_.back().kind == Frame::Kind::kList) {
      if (kind == Frame::Kind::kMap) return OpenMapOfList(mark);
      Complain(mark, "a list may hold plain values or maps, no lists");
    }
    Push(Frame::Kind::kIgnored);
  }

  void OpenMapOfList(const YAML::Mark& mark) {
    Frame& list = frames_.back();
    Entry& entry = content_->entries[list.entry];
    if (!entry.items.empty()) {
      Complain(mark, kMixed);
    } else if (list.maps < kMapsMax && frames_.size() < kDepthMax) {
      entry.kind = Entry::Kind::kMapList;
      content_->entries.push_back(
          {list.path + "[" + std::to_string(list.maps++) + "]", mark.line + 1, Entry::Kind::kMap, "", {}});
      return Push(Frame::Kind::kMap, content_->entries.back().path);
    } else {
      Complain(mark, "more maps in a list, or deeper ones, than any key takes");
    }
    Push(Frame::Kind::kIgnored);
  }

  void Push(Frame::Kind kind, const std::string& path = "", size_t entry = 0) {
    frames_.push_back({kind, path, std::nullopt, 0, entry, 0});
  }

  void Close() {
    if (!frames_.empty()) frames_.pop_back();
  }

  YamlContent* const content_;
  std::vector<Frame> frames_;  // Bounded by the parser, which refuses to nest deeper than 500.
};

}  // namespace

YamlContent ReadYaml(std::string_view text) {
  YamlContent content;
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    Flattener flattener(&content);
    if (parser.HandleNextDocument(flattener)) {
      YamlContent rest;
      Flattener ignored(&rest);
      if (parser.HandleNextDocument(ignored))
        content.complaints.push_back({0, "saw more than one YAML document, accepted is one"});
    }
  } catch (const YAML::Exception& e) {
    content.complaints.push_back({e.mark.is_null() ? 0 : e.mark.line + 1, "not readable as YAML: " + e.msg});
  }
  return content;
}

}  // namespace gyrostat::config
