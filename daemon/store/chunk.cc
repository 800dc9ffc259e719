#include "store/chunk.h"

#include <blosc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/archive.h"

namespace gyrostat::store {
namespace {

constexpr uint32_t kMagic = 0x31435947;  // "GYC1".
// lz4 does not try harder above this, and shuffling has done the work.
constexpr int kLevel = 5;
// A chunk with more sections than there are signals, or with larger ones than a report can make, is not one of ours.
constexpr uint32_t kSectionsMax = model::kScalarSlots + model::kArraySlots + 1;
constexpr size_t kSectionBytesMax = kChunkReportsMax * (size_t{model::kLayersMax} * model::kHeadsMax + 1) * 4;

constexpr uint32_t kMetaSection = 0;  // What is no signal; the others are called by their signal's number.

struct Section {
  uint32_t name = kMetaSection;
  uint32_t packed_bytes = 0;
  template <class Archive>
  void Fields(Archive& a) { a(name, packed_bytes); }
};

struct Head {
  uint32_t magic = kMagic, reports = 0;
  uint32_t section_count = 0;
};
static_assert(sizeof(Head) == 12 && sizeof(Section) == 8, "both are read as they lie");

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
std::string PackArray(std::span<const model::Report> reports, model::Signal signal) {
  base::ByteWriter raw;
  size_t width = 0;
  for (const model::Report& r : reports) {
    raw.Put(static_cast<uint32_t>(r.Array(signal).size()));
    width = std::max(width, r.Array(signal).size());
  }
  for (size_t i = 0; i < width; ++i)
    for (const model::Report& r : reports) raw.Put(i < r.Array(signal).size() ? r.Array(signal)[i] : model::kAbsent);
  return Pack(raw.bytes(), sizeof(float));
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
    if (chunk_size_ < sizeof(Head)) return Damaged("no head");
    if (absl::Status status = read_(0, sizeof(Head), reinterpret_cast<char*>(&head)); !status.ok()) return status;
    if (head.magic != kMagic) return Damaged("not a chunk");
    reports_ = head.reports;
    const size_t data = sizeof(Head) + head.section_count * sizeof(Section);
    if (head.section_count > kSectionsMax || reports_ == 0 || reports_ > kChunkReportsMax || data > chunk_size_)
      return Damaged("impossible head");
    sections_.resize(head.section_count);
    data_ = data;
    return read_(sizeof(Head), data - sizeof(Head), reinterpret_cast<char*>(sections_.data()));
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

 private:
  const ReadChunk& read_;
  const size_t chunk_size_;
  size_t data_ = 0;
  uint32_t reports_ = 0;
  std::vector<Section> sections_;
};

absl::Status ReadSignal(const Directory& directory, model::Signal signal, ChunkColumn* column) {
  const absl::StatusOr<std::string> raw = directory.Read(static_cast<uint32_t>(signal));
  if (!raw.ok()) return raw.status();
  const bool ok = model::IsScalar(signal) ? ReadScalarColumn(*raw, column) : ReadArrayColumn(*raw, column);
  return ok ? absl::OkStatus() : Damaged("a signal has the wrong size");
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
    array.resize(column.sizes[r]);
    for (size_t i = 0; i < array.size(); ++i) array[i] = static_cast<float>(column.values[i * count + r]);
  }
}

}  // namespace

std::string PackChunk(std::span<const model::Report> reports) {
  std::vector<Section> sections;
  std::string data;
  const auto add = [&](uint32_t name, const std::string& packed) {
    sections.push_back({name, static_cast<uint32_t>(packed.size())});
    data += packed;
  };
  base::ByteWriter meta;
  base::SaveTo(&meta, MetaOf(reports));
  add(kMetaSection, Pack(meta.bytes(), sizeof(uint64_t)));
  // In order of their numbers: scalars, the most wanted and the smallest, come first.
  for (const model::SignalInfo& info : model::Signals()) {
    if (std::ranges::none_of(reports, [&info](const model::Report& r) { return r.Has(info.signal); })) continue;
    add(static_cast<uint32_t>(info.signal),
        model::IsScalar(info.signal) ? PackScalar(reports, info.signal) : PackArray(reports, info.signal));
  }
  base::ByteWriter out;
  out.Put(kMagic);
  out.Put(static_cast<uint32_t>(reports.size()));
  out.Put(static_cast<uint32_t>(sections.size()));
  for (const Section& section : sections) base::SaveTo(&out, section);
  return out.Take() + data;
}

absl::Status UnpackChunk(std::string_view bytes, std::vector<model::Report>* reports) {
  const ReadChunk read = [bytes](size_t offset, size_t size, char* out) {
    std::memcpy(out, bytes.data() + offset, size);
    return absl::OkStatus();
  };
  Directory directory(read, bytes.size());
  if (absl::Status status = directory.Open(); !status.ok()) return status;
  const absl::StatusOr<Meta> meta = directory.ReadMeta();
  if (!meta.ok()) return meta.status();
  FillReports(*meta, reports);
  for (const model::SignalInfo& info : model::Signals()) {
    if (!directory.Has(static_cast<uint32_t>(info.signal))) continue;
    ChunkColumn column;
    column.steps = meta->step;
    if (absl::Status status = ReadSignal(directory, info.signal, &column); !status.ok()) return status;
    FillSignal(info.signal, column, reports);
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
  } else if (directory.Has(static_cast<uint32_t>(signal))) {
    if (absl::Status status = ReadSignal(directory, signal, &column); !status.ok()) return status;
  } else {
    column.sizes.assign(column.steps.size(), 0);
  }
  return column;
}

}  // namespace gyrostat::store
