-- What scripts find besides Lua 5.4: functions of older versions, and those of Slurm's that format their arguments.
local host = ...
local format, load_text, count = string.format, load, select

unpack = table.unpack
math.pow = math.pow or function(x, y) return x ^ y end
table.getn = table.getn or function(list) return #list end

function load(chunk, name, mode, ...)
  if count("#", ...) > 0 then return load_text(chunk, name, "t", (...)) end
  return load_text(chunk, name, "t")
end
loadstring = load

function loadfile(name, mode, ...)
  local text, problem = host.text(name)
  if not text then return nil, problem end
  return load(text, "@" .. name, "t", ...)
end
function dofile(name)
  local chunk, problem = loadfile(name)
  if not chunk then error(problem, 2) end
  return chunk()
end

package = { path = "?.lua", cpath = "", loaded = { string = string, table = table, math = math, slurm = slurm } }
function require(name)
  local known = package.loaded[name]
  if known ~= nil then return known end
  local path = name:gsub("%.", "/")
  local file = path .. ".lua"
  local text, problem = host.text(file)
  if not text then
    file = path .. "/init.lua"
    text = host.text(file)
  end
  if not text then error("module '" .. name .. "': " .. problem, 2) end
  local chunk, fault = load(text, "@" .. file, "t")
  if not chunk then error(fault, 0) end
  local value = chunk(name)
  if value == nil then value = true end
  package.loaded[name] = value
  return value
end

function print(...)
  local words = table.pack(...)
  for i = 1, words.n do words[i] = tostring(words[i]) end
  host.log(1, table.concat(words, "\t"))
end

local function logs(level)
  return function(...) host.log(level, format(...)) end
end
slurm.log_error, slurm.error = logs(0), logs(0)
slurm.log_info, slurm.info = logs(1), logs(1)
slurm.log_verbose, slurm.verbose = logs(2), logs(2)
slurm.log_debug, slurm.debug = logs(2), logs(2)
slurm.log_debug2, slurm.log_debug3, slurm.log_debug4 = logs(2), logs(2), logs(2)
function slurm.log(level, text) host.log(level > 1 and 2 or 1, text) end
function slurm.log_user(...) slurm.user_msg(format(...)) end
