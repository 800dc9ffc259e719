#include "config/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "config/keys.h"
#include "config/notify_keys.h"
#include "config/suggest.h"
#include "config/yaml_reader.h"

namespace gyrostat::config {
namespace {

// The commented default file has some 10 KiB.
constexpr size_t kFileBytesMax = 256 << 10;
// More mistakes than this are counted, not told.
constexpr size_t kToldMax = 50;
// What is shown of a value that was refused.
constexpr size_t kSeenBytesMax = 60;

std::string Seen(const Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::kNull: return "no value";
    case Entry::Kind::kMap: return "a map";
    case Entry::Kind::kMapList: return "a list of maps";
    case Entry::Kind::kScalar: break;
    case Entry::Kind::kList: {
      std::string items;
      for (const std::string& item : entry.items)
        if (items.size() <= kSeenBytesMax) items += (items.empty() ? "" : ", ") + item;
      return "[" + items.substr(0, kSeenBytesMax) + (items.size() > kSeenBytesMax ? "…" : "") + "]";
    }
  }
  return "'" + entry.text.substr(0, kSeenBytesMax) + (entry.text.size() > kSeenBytesMax ? "…" : "") + "'";
}

// The name under which keys know a path: without the numbers of maps in lists.
std::string NameOf(const std::string& path) {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i)
    if (i == 0 || path[i - 1] != '[') name += path[i];
    else if (i = path.find(']', i); i == std::string::npos) return path;
    else name += ']';
  return name;
}

// Of one that stands for every item of a list.
bool IsItem(const std::string& name) { return name.size() > 2 && name.compare(name.size() - 2, 2, "[]") == 0; }

// Why `entry` is no value of `key`.
std::string WhyRefused(const Key& key, const Entry& entry) {
  const std::string own = key.explain ? key.explain(entry) : "";
  return own.empty() ? "saw " + Seen(entry) + ", accepted is " + key.accepted : own;
}

// Reads one file's entries into a Config and gathers what is wrong.
class Loader {
 public:
  explicit Loader(std::string file) : file_(std::move(file)) {
    for (const Key& key : Keys()) {
      keys_[key.name] = &key;
      for (size_t dot = key.name.find('.'); dot != std::string::npos; dot = key.name.find('.', dot + 1))
        sections_.insert(key.name.substr(0, dot));
      names_.push_back(key.name);
    }
    names_.insert(names_.end(), sections_.begin(), sections_.end());
  }

  absl::StatusOr<Config> Load(std::string_view text) {
    const YamlContent content = ReadYaml(text);
    for (const Complaint& complaint : content.complaints) Complain(complaint.line, "", complaint.text);
    for (const Entry& entry : content.entries) Take(entry);
    for (const Order& order : Orders())
      if (!order.holds(config_)) ComplainOf(order);
    for (const Fault& fault : NotifyFaults(config_)) Complain(lines_[fault.path], fault.path, fault.text);
    if (complaints_.empty()) return config_;
    const size_t untold = complaints_.size() - std::min(complaints_.size(), kToldMax);
    std::stable_sort(complaints_.begin(), complaints_.end(),
                     [](const Complaint& a, const Complaint& b) { return a.line < b.line; });
    complaints_.resize(complaints_.size() - untold);
    std::string all;
    for (const Complaint& complaint : complaints_) {
      if (!all.empty()) all += "\n";
      all += file_ + ":" + (complaint.line > 0 ? std::to_string(complaint.line) + ":" : "") + " " + complaint.text;
    }
    if (untold > 0) all += "\n" + file_ + ": and " + std::to_string(untold) + " more";
    return absl::InvalidArgumentError(all);
  }

 private:
  void Complain(int line, const std::string& key, const std::string& text) {
    complaints_.push_back({line, key.empty() ? text : key + ": " + text});
  }

  void Take(const Entry& entry) {
    const auto [first, is_new] = lines_.emplace(entry.path, entry.line);
    if (!is_new)
      return Complain(entry.line, entry.path, "given twice, first on line " + std::to_string(first->second));
    const std::string name = NameOf(entry.path);
    if (const auto found = keys_.find(name); found != keys_.end()) return TakeValue(*found->second, entry);
    if (sections_.count(name) > 0) {
      if (IsItem(name)) return keys_[name.substr(0, name.size() - 2)]->add(&config_);
      if (entry.kind != Entry::Kind::kMap && entry.kind != Entry::Kind::kNull)
        Complain(entry.line, entry.path, "saw " + Seen(entry) + ", accepted is a map of " + Children(entry.path));
      return;
    }
    // Of an unknown section only its name is a mistake, not all that is in it.
    const std::string parent = Parent(name);
    if (IsItem(name) || (!parent.empty() && sections_.count(parent) == 0)) return;
    // The search is worth its time only for what is told.
    const std::string meant = complaints_.size() < kToldMax ? Nearest(entry.path, names_) : "";
    const std::string where = parent.empty() ? "a file" : parent;
    Complain(entry.line, entry.path,
             "there is no such key; " +
                 (meant.empty() ? where + " may have " + Children(parent) : "is " + meant + " meant?"));
  }

  void TakeValue(const Key& key, const Entry& entry) {
    if (!key.set(entry, &config_)) Complain(entry.line, entry.path, WhyRefused(key, entry));
  }

  void ComplainOf(const Order& order) {
    // Only one of the two may be in the file: that line is to blame.
    const auto line = lines_.count(order.name) > 0 ? lines_[order.name] : lines_[order.limit];
    Complain(line, order.name,
             "is " + keys_[order.name]->show(config_) + ", accepted is at most " + order.limit + ", which is " +
                 keys_[order.limit]->show(config_));
  }

  static std::string Parent(const std::string& path) {
    const size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
  }

  // The words that may follow a section's name.
  std::string Children(const std::string& section) const {
    std::set<std::string> children;
    const std::string prefix = section.empty() ? "" : section + ".";
    for (const std::string& name : names_)
      if (name.rfind(prefix, 0) == 0 && name.find("[]", prefix.size()) == std::string::npos)
        children.insert(name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size()));
    std::string text;
    for (const std::string& child : children) text += (text.empty() ? "" : ", ") + child;
    return text;
  }

  const std::string file_;
  std::map<std::string, const Key*> keys_;
  std::vector<std::string> names_;  // Of keys and sections.
  std::set<std::string> sections_;
  std::map<std::string, int> lines_;  // Where each path was given first.
  Config config_;
  std::vector<Complaint> complaints_;
};

// `text` as comment lines of at most 100 columns, each with `indent` and, in the comment, `inner` before it.
std::string Comment(const std::string& indent, const std::string& text, const std::string& inner = "") {
  const std::string begin = indent + "#" + inner;
  std::string lines, line = begin;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    if (line.size() + 1 + (end - at) > 100) {
      lines += line + "\n";
      line = begin;
    }
    line += " " + text.substr(at, end - at);
    at = end + 1;
  }
  return lines + line + "\n";
}

std::string CapitalLetter(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// A key of a list's items: no line of the file can be its default where the list is empty.
std::string ItemComment(const Key& key, const std::string& indent, const std::string& shown) {
  const std::string name = key.name.substr(key.name.rfind('.') + 1);
  const std::string inner = "       ";
  return Comment(indent, name + ": " + shown, "  ") + Comment(indent, key.description, inner) +
         Comment(indent, CapitalLetter(key.accepted) + (key.change == Change::kReload ? ". (reload)" : "."), inner);
}

// The whole file, or why not. Only regular files: a pipe could have no end.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::NotFoundError(path + ": cannot be read: " + std::strerror(errno));
  struct stat info {};
  std::string text, problem;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) problem = "is not a regular file";
  char buffer[8192];
  while (problem.empty()) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0) break;
    if (got < 0) {
      problem = std::string("cannot be read: ") + std::strerror(errno);
    } else {
      text.append(buffer, static_cast<size_t>(got));
      if (text.size() > kFileBytesMax)
        problem = "is larger than " + std::to_string(kFileBytesMax) + " bytes, which no configuration is";
    }
  }
  close(fd);
  if (problem.empty()) return text;
  return absl::InvalidArgumentError(path + ": " + problem);
}

}  // namespace

absl::StatusOr<Config> LoadFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  return Parse(*text, path);
}

absl::StatusOr<Config> Parse(std::string_view text, const std::string& file) {
  absl::StatusOr<Config> config = Loader(file).Load(text);
  // One tau for what is watched and what is clipped.
  if (config.ok()) config->engine.run.detect.attn_logit.tau = config->engine.run.policy.qk_clip.tau;
  return config;
}

absl::Status Set(const std::string& key, const std::string& text, const std::string& origin, Config* config) {
  const auto found = std::find_if(Keys().begin(), Keys().end(), [&](const Key& each) { return each.name == key; });
  if (found == Keys().end()) return absl::InvalidArgumentError(origin + ": there is no key " + key);
  const Entry entry{key, 0, Entry::Kind::kScalar, text, {}};
  if (!found->set(entry, config)) return absl::InvalidArgumentError(origin + ": " + WhyRefused(*found, entry));
  return absl::OkStatus();
}

std::string DefaultYaml() {
  std::string yaml =
      "# gyrostatd reads this with --config. Every key may be left out; what stands here is its default.\n"
      "# Keys marked (reload) change while the daemon runs, when the file changes or on SIGHUP; a file\n"
      "# with a mistake changes nothing. `gyrostatd --check --config FILE` says all that is wrong.\n";
  const Config defaults;
  Config items;  // With one item in each list of maps: what an item's keys are by default.
  for (const Key& key : Keys())
    if (key.add) key.add(&items);
  std::vector<std::string> open;  // Sections that we are in.
  for (const Key& key : Keys()) {
    if (key.name.find("[]") != std::string::npos) {
      yaml += ItemComment(key, std::string(2 * open.size(), ' '), key.show(items));
      continue;
    }
    std::vector<std::string> parts;
    for (size_t at = 0; at <= key.name.size();) {
      const size_t dot = std::min(key.name.find('.', at), key.name.size());
      parts.push_back(key.name.substr(at, dot - at));
      at = dot + 1;
    }
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
    open.resize(common);
    while (open.size() + 1 < parts.size()) {
      yaml += (open.empty() ? "\n" : "") + std::string(2 * open.size(), ' ') + parts[open.size()] + ":\n";
      open.push_back(parts[open.size()]);
    }
    if (parts.size() == 1) yaml += "\n";
    const std::string indent(2 * open.size(), ' ');
    yaml += Comment(indent, key.description);
    yaml += Comment(indent, CapitalLetter(key.accepted) + (key.change == Change::kReload ? ". (reload)" : "."));
    yaml += indent + parts.back() + ": " + key.show(defaults) + "\n";
  }
  return yaml;
}

std::vector<std::string> KeysNeedingRestart(const Config& running, const Config& wanted) {
  std::vector<std::string> names;
  for (const Key& key : Keys())
    if (key.change == Change::kRestart && key.show(running) != key.show(wanted)) names.push_back(key.name);
  return names;
}

std::string DefaultDataDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (geteuid() == 0) return "/var/lib/gyrostat";
  if (state != nullptr && state[0] == '/') return std::string(state) + "/gyrostat";
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.local/state/gyrostat";
  return "/var/lib/gyrostat";
}

}  // namespace gyrostat::config
