#include "store/chunk.h"

#include <blosc.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/archive.h"

namespace gyrostat::store {
namespace {

constexpr uint32_t kMagicOfOld = 0x31435947;  // "GYC1".
constexpr uint32_t kMagic = 0x32435947;       // "GYC2".
// lz4 does not try harder above this, and shuffling has done the work.
constexpr int kLevel = 5;
// A chunk with more sections than there are signals, or with larger ones than a report can make, is not one of ours.
constexpr uint32_t kSectionsMax = model::kScalarSlots + model::kArraySlots + 2;
constexpr size_t kSectionBytesMax = kChunkReportsMax * (size_t{model::kLayersMax} * model::kHeadsMax + 1) * 4;

// Sections are called by their signal's number, but for these.
constexpr uint32_t kMetaSection = 0;         // What is no signal.
constexpr uint32_t kArrivedSection = 0x200;  // Unix milliseconds, one a report.
constexpr uint32_t kSparse = 0x100;          // Added to the number: only values that are not absent.
// A value costs 4 bytes, one that says where it is 8: less than this share of values is worth the trouble.
constexpr size_t kSparseShare = 3;

struct Section {
  uint32_t name = kMetaSection;
  uint32_t packed_bytes = 0;
  uint32_t crc = 0;
  template <class Archive>
  void Fields(Archive& a) { a(name, packed_bytes, crc); }
};

struct Head {
  uint32_t magic = kMagic, reports = 0;
  uint32_t section_count = 0;
  uint32_t crc = 0;  // Of the three above and the directory.
};
constexpr size_t kHeadBytesOfOld = 12, kSectionBytesOfOld = 8;
static_assert(sizeof(Head) == 16 && sizeof(Section) == 12, "both are read as they lie");

uint32_t Crc(uint32_t crc, std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32(crc, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<uInt>(bytes.size())));
}
uint32_t CrcOfHead(const Head& head, std::string_view directory) {
  return Crc(Crc(0, {reinterpret_cast<const char*>(&head), kHeadBytesOfOld}), directory);
}

// What a report holds besides signals. Column-wise like the rest.
struct Meta {
  std::vector<uint64_t> sequence, boundary, ledger_version, dropped_hot, dropped_unacked;
  std::vector<uint32_t> epoch;
  std::vector<int64_t> step;
  std::vector<double> step_time_ms;
  std::vector<uint8_t> attn_logit_kind;
  std::vector<std::pair<uint32_t, model::LocalClips>> local_clips;  // By index of the report; empty ones are left out.
  std::vector<std::vector<std::pair<std::string, double>>> user;
  template <class Archive>
  void Fields(Archive& a) {
    a(sequence, boundary, ledger_version, dropped_hot, dropped_unacked, epoch, step, step_time_ms, attn_logit_kind,
      local_clips, user);
  }
};

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError("a chunk of the history is damaged: " + what);
}

std::string Pack(std::string_view raw, size_t value_bytes) {
  std::string packed(raw.size() + BLOSC_MAX_OVERHEAD, '\0');
  const int size = blosc_compress_ctx(kLevel, BLOSC_BITSHUFFLE, value_bytes, raw.size(), raw.data(), packed.data(),
                                      packed.size(), BLOSC_LZ4_COMPNAME, 0, 1);
  packed.resize(static_cast<size_t>(std::max(size, 0)));
  return packed;
}

bool Unpack(const std::string& packed, std::string* raw) {
  size_t size = 0;
  if (blosc_cbuffer_validate(packed.data(), packed.size(), &size) < 0 || size > kSectionBytesMax) return false;
  raw->resize(size);
  return blosc_decompress_ctx(packed.data(), raw->data(), size, 1) == static_cast<int>(size);
}

Meta MetaOf(std::span<const model::Report> reports) {
  Meta meta;
  for (uint32_t i = 0; i < reports.size(); ++i) {
    const model::Report& r = reports[i];
    meta.sequence.push_back(r.sequence);
    meta.boundary.push_back(r.boundary);
    meta.ledger_version.push_back(r.ledger_version);
    meta.dropped_hot.push_back(r.dropped_hot);
    meta.dropped_unacked.push_back(r.dropped_unacked);
    meta.epoch.push_back(r.epoch);
    meta.step.push_back(r.step);
    meta.step_time_ms.push_back(r.step_time_ms);
    meta.attn_logit_kind.push_back(static_cast<uint8_t>(r.attn_logit_kind));
    if (r.local_clips.applied.size() > 0) meta.local_clips.emplace_back(i, r.local_clips);
    meta.user.push_back(r.user);
  }
  return meta;
}

bool IsWhole(const Meta& m, size_t reports) {
  return m.sequence.size() == reports && m.boundary.size() == reports && m.ledger_version.size() == reports &&
         m.dropped_hot.size() == reports && m.dropped_unacked.size() == reports && m.epoch.size() == reports &&
         m.step.size() == reports && m.step_time_ms.size() == reports && m.attn_logit_kind.size() == reports &&
         m.user.size() == reports &&
         std::ranges::all_of(m.local_clips, [reports](const auto& each) { return each.first < reports; });
}

std::string PackScalar(std::span<const model::Report> reports, model::Signal signal) {
  base::ByteWriter raw;
  for (const model::Report& r : reports) raw.Put(r.Scalar(signal));
  return Pack(raw.bytes(), sizeof(double));
}

// Sizes first, then series by series; a report without a value there holds kAbsent.
std::string PackDense(std::span<const model::Report> reports, model::Signal signal, size_t width) {
  base::ByteWriter raw;
  for (const model::Report& r : reports) raw.Put(static_cast<uint32_t>(r.Array(signal).size()));
  for (size_t i = 0; i < width; ++i)
    for (const model::Report& r : reports) raw.Put(i < r.Array(signal).size() ? r.Array(signal)[i] : model::kAbsent);
  return Pack(raw.bytes(), sizeof(float));
}

// Sizes, then how many values each report keeps, then how far each is from the one before it, then the values.
std::string PackSparse(std::span<const model::Report> reports, model::Signal signal) {
  base::ByteWriter raw, distances, values;
  for (const model::Report& r : reports) raw.Put(static_cast<uint32_t>(r.Array(signal).size()));
  for (const model::Report& r : reports) {
    const std::span<const float> array = r.Array(signal);
    uint32_t kept = 0, last = 0;
    for (uint32_t i = 0; i < array.size(); ++i) {
      if (model::IsAbsent(array[i])) continue;
      distances.Put(i - last);
      values.Put(array[i]);
      last = i;
      ++kept;
    }
    raw.Put(kept);
  }
  return Pack(raw.Take() + distances.bytes() + values.bytes(), sizeof(float));
}

// And under which name.
std::pair<uint32_t, std::string> PackArray(std::span<const model::Report> reports, model::Signal signal) {
  size_t width = 0, kept = 0;
  for (const model::Report& r : reports) {
    width = std::max(width, r.Array(signal).size());
    kept += static_cast<size_t>(std::ranges::count_if(r.Array(signal), [](float v) { return !model::IsAbsent(v); }));
  }
  const auto name = static_cast<uint32_t>(signal);
  if (kept * kSparseShare < width * reports.size()) return {name + kSparse, PackSparse(reports, signal)};
  return {name, PackDense(reports, signal, width)};
}

bool ReadSparseColumn(std::string_view raw, ChunkColumn* column) {
  const size_t reports = column->steps.size();
  base::ByteReader in(raw);
  std::vector<uint32_t> counts(reports);
  for (size_t r = 0; r < reports; ++r) {
    column->sizes.push_back(in.Get<uint32_t>());
    column->width = std::max(column->width, column->sizes.back());
  }
  for (uint32_t& count : counts) in.Get(&count);
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  if (!in.ok() || raw.size() != (2 * reports + 2 * total) * sizeof(uint32_t)) return false;
  if (size_t{column->width} > size_t{model::kLayersMax} * model::kHeadsMax + 1) return false;
  column->sparse = true;
  column->kept.resize(total);
  size_t at = 0;
  for (uint32_t r = 0; r < reports; ++r) {
    uint64_t index = 0;
    for (uint32_t k = 0; k < counts[r]; ++k) {
      const auto distance = in.Get<uint32_t>();
      index += distance;
      if ((k > 0 && distance == 0) || index >= column->sizes[r]) return false;
      column->kept[at++] = {r, static_cast<uint32_t>(index), 0};
    }
  }
  for (ChunkColumn::Kept& kept : column->kept) in.Get(&kept.value);
  return in.ok();
}

bool ReadScalarColumn(std::string_view raw, ChunkColumn* column) {
  const size_t reports = column->steps.size();
  if (raw.size() != reports * sizeof(double)) return false;
  base::ByteReader in(raw);
  column->width = 1;
  for (size_t r = 0; r < reports; ++r) {
    column->values.push_back(in.Get<double>());
    column->sizes.push_back(model::IsAbsent(column->values.back()) ? 0 : 1);
  }
  return in.ok();
}

bool ReadArrayColumn(std::string_view raw, ChunkColumn* column) {
  const size_t reports = column->steps.size();
  base::ByteReader in(raw);
  for (size_t r = 0; r < reports; ++r) {
    column->sizes.push_back(in.Get<uint32_t>());
    column->width = std::max(column->width, column->sizes.back());
  }
  const size_t values = size_t{column->width} * reports;
  if (raw.size() != reports * sizeof(uint32_t) + values * sizeof(float)) return false;
  column->values.reserve(values);
  for (size_t i = 0; i < values; ++i) column->values.push_back(static_cast<double>(in.Get<float>()));
  return in.ok();
}

// The directory of a chunk, and reading what it names.
class Directory {
 public:
  explicit Directory(const ReadChunk& read, size_t chunk_size) : read_(read), chunk_size_(chunk_size) {}

  absl::Status Open() {
    Head head;
    if (chunk_size_ < kHeadBytesOfOld) return Damaged("no head");
    if (absl::Status status = read_(0, kHeadBytesOfOld, reinterpret_cast<char*>(&head)); !status.ok()) return status;
    old_ = head.magic == kMagicOfOld;
    if (head.magic != kMagic && !old_) return Damaged("not a chunk");
    const size_t head_bytes = old_ ? kHeadBytesOfOld : sizeof(Head);
    const size_t each = old_ ? kSectionBytesOfOld : sizeof(Section);
    reports_ = head.reports;
    if (head.section_count > kSectionsMax || reports_ == 0 || reports_ > kChunkReportsMax ||
        head_bytes + head.section_count * each > chunk_size_)
      return Damaged("impossible head");
    std::string directory(head.section_count * each, '\0');
    data_ = head_bytes + directory.size();
    absl::Status status = read_(head_bytes, directory.size(), directory.data());
    if (status.ok() && !old_)
      status = read_(kHeadBytesOfOld, sizeof(head.crc), reinterpret_cast<char*>(&head.crc));
    if (!status.ok()) return status;
    if (!old_ && CrcOfHead(head, directory) != head.crc) return Damaged("its directory has changed");
    sections_.resize(head.section_count);
    for (size_t i = 0; i < sections_.size(); ++i) std::memcpy(&sections_[i], directory.data() + i * each, each);
    return absl::OkStatus();
  }

  bool Has(uint32_t name) const { return std::ranges::find(sections_, name, &Section::name) != sections_.end(); }

  absl::StatusOr<std::string> Read(uint32_t name) const {
    size_t offset = data_;
    for (const Section& section : sections_) {
      if (section.packed_bytes > chunk_size_ - offset) return Damaged("a section is cut short");
      if (section.name != name) {
        offset += section.packed_bytes;
        continue;
      }
      std::string packed(section.packed_bytes, '\0'), raw;
      if (absl::Status status = read_(offset, packed.size(), packed.data()); !status.ok()) return status;
      if (!old_ && Crc(0, packed) != section.crc) return Damaged("the bytes of a section have changed");
      if (!Unpack(packed, &raw)) return Damaged("a section cannot be unpacked");
      return raw;
    }
    return Damaged("a section is missing");
  }

  absl::StatusOr<Meta> ReadMeta() const {
    const absl::StatusOr<std::string> raw = Read(kMetaSection);
    if (!raw.ok()) return raw.status();
    base::ByteReader in(*raw);
    Meta meta;
    if (!base::LoadFrom(&in, &meta) || !IsWhole(meta, reports_)) return Damaged("its steps cannot be read");
    return meta;
  }

  absl::StatusOr<std::vector<int64_t>> ReadArrived() const {
    std::vector<int64_t> arrived(reports_, 0);
    if (!Has(kArrivedSection)) return arrived;
    const absl::StatusOr<std::string> raw = Read(kArrivedSection);
    if (!raw.ok()) return raw.status();
    if (raw->size() != arrived.size() * sizeof(int64_t)) return Damaged("the times of arrival have the wrong size");
    std::memcpy(arrived.data(), raw->data(), raw->size());
    return arrived;
  }

 private:
  const ReadChunk& read_;
  const size_t chunk_size_;
  bool old_ = false;
  size_t data_ = 0;
  uint32_t reports_ = 0;
  std::vector<Section> sections_;
};

absl::Status ReadSignal(const Directory& directory, model::Signal signal, ChunkColumn* column) {
  const auto name = static_cast<uint32_t>(signal);
  const bool sparse = directory.Has(name + kSparse);
  const absl::StatusOr<std::string> raw = directory.Read(sparse ? name + kSparse : name);
  if (!raw.ok()) return raw.status();
  const bool ok = model::IsScalar(signal) ? ReadScalarColumn(*raw, column)
                  : sparse                ? ReadSparseColumn(*raw, column)
                                          : ReadArrayColumn(*raw, column);
  return ok ? absl::OkStatus() : Damaged("a signal has the wrong size");
}

bool HasSignal(const Directory& directory, model::Signal signal) {
  const auto name = static_cast<uint32_t>(signal);
  return directory.Has(name) || (model::IsArray(signal) && directory.Has(name + kSparse));
}

void ReadUser(const Meta& meta, const std::string& name, ChunkColumn* column) {
  column->width = 1;
  for (const auto& pairs : meta.user) {
    const auto it = std::ranges::find(pairs, name, &std::pair<std::string, double>::first);
    column->sizes.push_back(it == pairs.end() ? 0 : 1);
    column->values.push_back(it == pairs.end() ? static_cast<double>(model::kAbsent) : it->second);
  }
}

void FillReports(const Meta& meta, std::vector<model::Report>* reports) {
  reports->assign(meta.step.size(), {});
  for (size_t i = 0; i < reports->size(); ++i) {
    model::Report& r = (*reports)[i];
    r.sequence = meta.sequence[i];
    r.boundary = meta.boundary[i];
    r.ledger_version = meta.ledger_version[i];
    r.dropped_hot = meta.dropped_hot[i];
    r.dropped_unacked = meta.dropped_unacked[i];
    r.epoch = meta.epoch[i];
    r.step = meta.step[i];
    r.step_time_ms = meta.step_time_ms[i];
    r.attn_logit_kind = static_cast<model::LogitKind>(meta.attn_logit_kind[i]);
    r.user = meta.user[i];
  }
  for (const auto& [index, clips] : meta.local_clips) (*reports)[index].local_clips = clips;
}

void FillSignal(model::Signal signal, const ChunkColumn& column, std::vector<model::Report>* reports) {
  const size_t count = reports->size();
  for (size_t r = 0; r < count; ++r) {
    if (model::IsScalar(signal)) {
      (*reports)[r].SetScalar(signal, column.values[r]);
      continue;
    }
    std::vector<float>& array = (*reports)[r].MutableArray(signal);
    array.assign(column.sizes[r], model::kAbsent);
    if (column.sparse) continue;
    for (size_t i = 0; i < array.size(); ++i) array[i] = static_cast<float>(column.values[i * count + r]);
  }
  for (const ChunkColumn::Kept& kept : column.kept)
    (*reports)[kept.report].MutableArray(signal)[kept.index] = kept.value;
}

}  // namespace

std::string PackChunk(std::span<const model::Report> reports, std::span<const int64_t> arrived_unix_ms) {
  std::vector<Section> sections;
  std::string data;
  const auto add = [&](uint32_t name, const std::string& packed) {
    sections.push_back({name, static_cast<uint32_t>(packed.size()), Crc(0, packed)});
    data += packed;
  };
  base::ByteWriter meta;
  base::SaveTo(&meta, MetaOf(reports));
  add(kMetaSection, Pack(meta.bytes(), sizeof(uint64_t)));
  if (arrived_unix_ms.size() == reports.size()) {
    base::ByteWriter arrived;
    for (const int64_t each : arrived_unix_ms) arrived.Put(each);
    add(kArrivedSection, Pack(arrived.bytes(), sizeof(int64_t)));
  }
  // In order of their numbers: scalars, the most wanted and the smallest, come first.
  for (const model::SignalInfo& info : model::Signals()) {
    if (std::ranges::none_of(reports, [&info](const model::Report& r) { return r.Has(info.signal); })) continue;
    if (model::IsScalar(info.signal)) {
      add(static_cast<uint32_t>(info.signal), PackScalar(reports, info.signal));
    } else {
      const auto [name, packed] = PackArray(reports, info.signal);
      add(name, packed);
    }
  }
  base::ByteWriter directory;
  for (const Section& section : sections) base::SaveTo(&directory, section);
  Head head{kMagic, static_cast<uint32_t>(reports.size()), static_cast<uint32_t>(sections.size()), 0};
  head.crc = CrcOfHead(head, directory.bytes());
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + directory.bytes() + data;
}

absl::Status UnpackChunk(std::string_view bytes, ChunkContent* content) {
  const ReadChunk read = [bytes](size_t offset, size_t size, char* out) {
    if (offset > bytes.size() || size > bytes.size() - offset) return Damaged("it is cut short");
    std::memcpy(out, bytes.data() + offset, size);
    return absl::OkStatus();
  };
  Directory directory(read, bytes.size());
  if (absl::Status status = directory.Open(); !status.ok()) return status;
  const absl::StatusOr<Meta> meta = directory.ReadMeta();
  if (!meta.ok()) return meta.status();
  absl::StatusOr<std::vector<int64_t>> arrived = directory.ReadArrived();
  if (!arrived.ok()) return arrived.status();
  content->arrived_unix_ms = *std::move(arrived);
  FillReports(*meta, &content->reports);
  for (const model::SignalInfo& info : model::Signals()) {
    if (!HasSignal(directory, info.signal)) continue;
    ChunkColumn column;
    column.steps = meta->step;
    if (absl::Status status = ReadSignal(directory, info.signal, &column); !status.ok()) return status;
    FillSignal(info.signal, column, &content->reports);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChunkColumn> ReadColumn(const ReadChunk& read, size_t chunk_size, model::Signal signal,
                                       const std::string& user_name) {
  Directory directory(read, chunk_size);
  if (absl::Status status = directory.Open(); !status.ok()) return status;
  const absl::StatusOr<Meta> meta = directory.ReadMeta();
  if (!meta.ok()) return meta.status();
  ChunkColumn column;
  column.steps = meta->step;
  if (signal == model::Signal::kNone) {
    ReadUser(*meta, user_name, &column);
  } else if (HasSignal(directory, signal)) {
    if (absl::Status status = ReadSignal(directory, signal, &column); !status.ok()) return status;
  } else {
    column.sizes.assign(column.steps.size(), 0);
  }
  return column;
}

}  // namespace gyrostat::store
