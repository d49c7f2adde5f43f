-- Files that a script reads where it may start no programs: those below its folder.
local content = io.content
io.content = nil

local file = {}
file.__index = file
file.__name = "FILE*"
file.__close = function() end

local function line(self, keep)
  if self.at > #self.text then return nil end
  local stop = self.text:find("\n", self.at, true)
  local last = stop or #self.text
  local found = self.text:sub(self.at, (stop and not keep) and last - 1 or last)
  self.at = last + 1
  return found
end

function file:read(what)
  what = what or "l"
  if type(what) == "number" then
    if what > 0 and self.at > #self.text then return nil end
    local found = self.text:sub(self.at, self.at + what - 1)
    self.at = self.at + what
    return found
  end
  local form = what:gsub("^%*", ""):sub(1, 1)
  if form == "a" then
    local found = self.text:sub(self.at)
    self.at = #self.text + 1
    return found
  elseif form == "n" then
    local first, last = self.text:find("^%s*[-+.%w]+", self.at)
    if not first then return nil end
    self.at = last + 1
    return tonumber(self.text:sub(first, last))
  end
  return line(self, form == "L")
end

function file:lines(what)
  return function() return self:read(what) end
end
function file:close() return true end

function io.open(name, mode)
  local text, problem = content(name, mode)
  if not text then return nil, problem end
  return setmetatable({ text = text, at = 1 }, file)
end
function io.lines(name, what)
  local opened, problem = io.open(name)
  if not opened then error(problem, 2) end
  return opened:lines(what)
end
