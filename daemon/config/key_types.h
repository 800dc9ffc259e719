// Makers of Key by the type of the value: how it is read, checked and shown. Private to config/.
//
// `get` takes a Config& or a const Config& and returns a reference to the field.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/keys.h"

namespace gyrostat::config {

// Whole text or nothing. Numbers are decimal; NaN and infinities are none.
std::optional<int64_t> ReadInteger(std::string_view text);
std::optional<double> ReadNumber(std::string_view text);
std::string ShowNumber(double value);  // The shortest decimal that reads back the same.
std::string Quoted(std::string_view text);
std::string PathProblem(const std::string& text);  // Empty: it can be a path, or is empty.

template <class Get>
Key IntegerKey(const char* name, const char* description, int64_t min, int64_t max, Get get, Change change) {
  return {name,
          description,
          "a whole number from " + std::to_string(min) + " to " + std::to_string(max),
          change,
          [=](const Entry& entry, Config* config) {
            const auto value = entry.kind == Entry::Kind::kScalar ? ReadInteger(entry.text) : std::nullopt;
            if (!value || *value < min || *value > max) return false;
            auto& field = get(*config);
            field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
            return true;
          },
          [=](const Config& config) { return std::to_string(get(config)); },
          nullptr};
}

// A duration held in milliseconds and written in `unit_ms` milliseconds; the key's name ends with the unit.
template <class Get>
Key DurationKey(const char* name, const char* description, int64_t min, int64_t max, int64_t unit_ms, Get get,
                Change change) {
  return {name,
          description,
          "a whole number from " + std::to_string(min) + " to " + std::to_string(max),
          change,
          [=](const Entry& entry, Config* config) {
            const auto value = entry.kind == Entry::Kind::kScalar ? ReadInteger(entry.text) : std::nullopt;
            if (!value || *value < min || *value > max) return false;
            get(*config) = base::Milliseconds(*value * unit_ms);
            return true;
          },
          [=](const Config& config) { return std::to_string(get(config).count() / unit_ms); },
          nullptr};
}

template <class Get>
Key NumberKey(const char* name, const char* description, double min, double max, Get get, Change change) {
  return {name,
          description,
          "a number from " + ShowNumber(min) + " to " + ShowNumber(max),
          change,
          [=](const Entry& entry, Config* config) {
            const auto value = entry.kind == Entry::Kind::kScalar ? ReadNumber(entry.text) : std::nullopt;
            if (!value || *value < min || *value > max) return false;
            get(*config) = *value;
            return true;
          },
          [=](const Config& config) { return ShowNumber(get(config)); },
          nullptr};
}

template <class E>
using Choice = std::pair<std::string, E>;

template <class E>
std::string JoinChoices(const std::vector<Choice<E>>& choices) {
  std::string text;
  for (const auto& [token, value] : choices) text += (text.empty() ? "" : ", ") + token;
  return text;
}

template <class E, class Get>
Key ChoiceKey(const char* name, const char* description, std::vector<Choice<E>> choices, Get get, Change change) {
  return {name,
          description,
          "one of " + JoinChoices(choices),
          change,
          [=](const Entry& entry, Config* config) {
            if (entry.kind != Entry::Kind::kScalar) return false;
            for (const auto& [token, value] : choices)
              if (token == entry.text) return get(*config) = value, true;
            return false;
          },
          [=](const Config& config) {
            for (const auto& [token, value] : choices)
              if (value == get(config)) return token;
            return std::string();
          },
          nullptr};
}

// A list without repeats.
template <class E, class Get>
Key ChoicesKey(const char* name, const char* description, std::vector<Choice<E>> choices, Get get, Change change) {
  return {name,
          description,
          "a list of any of " + JoinChoices(choices),
          change,
          [=](const Entry& entry, Config* config) {
            if (entry.kind != Entry::Kind::kList) return false;
            std::vector<E> wanted;
            for (const std::string& item : entry.items) {
              const auto found =
                  std::find_if(choices.begin(), choices.end(), [&](const auto& c) { return c.first == item; });
              if (found == choices.end() || std::count(wanted.begin(), wanted.end(), found->second) > 0) return false;
              wanted.push_back(found->second);
            }
            get(*config) = wanted;
            return true;
          },
          [=](const Config& config) {
            std::vector<Choice<E>> chosen;
            for (const E value : get(config))
              for (const auto& choice : choices)
                if (choice.second == value) chosen.push_back(choice);
            return "[" + JoinChoices(chosen) + "]";
          },
          nullptr};
}

// `problem` says why a text is refused, or nothing.
template <class Get>
Key TextKey(const char* name, const char* description, const char* accepted,
            std::string (*problem)(const std::string&), Get get, Change change) {
  return {
      name,
      description,
      accepted,
      change,
      [=](const Entry& entry, Config* config) {
        if (entry.kind != Entry::Kind::kScalar || !problem(entry.text).empty()) return false;
        get(*config) = entry.text;
        return true;
      },
      [=](const Config& config) { return Quoted(get(config)); },
      [=](const Entry& entry) { return entry.kind == Entry::Kind::kScalar ? problem(entry.text) : std::string(); }};
}

}  // namespace gyrostat::config
