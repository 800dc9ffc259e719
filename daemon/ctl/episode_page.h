// A diagnosis on a terminal: the page as diagnose/ writes it, wrapped and tinted. Pure.
#pragma once

#include <string>

#include "ctl/text.h"

namespace gyrostat::ctl {

// `page` is diagnose::Diagnosis::Text(), also when it came over the wire; its first line is the headline.
std::string RenderEpisode(const std::string& severity, const std::string& page, const Style& style);

}  // namespace gyrostat::ctl
